// The service of block.proto on a BlockDevice.
//
// The engine's thread checks a request, and moves its payload between the client's memory and
// a buffer; a thread of the pool waits for the disk. What is in the page cache is read by the
// engine's thread itself, if it is small: that takes a microsecond, and a hand-over two wake-ups.
// (preadv2(2) with RWF_NOWAIT never waits for a disk.)
//
// A session, by the engine's thread alone:
//   state     set by                                left for
//   kWaiting  StartAttach()                         kOpen, when the client's earlier sessions are
//                                                   gone; kClosed
//   kOpen     its client has been told its number   kClosed, when its stream ends, or the client
//                                                   attaches again
//   kClosed   requests that name it are refused,    gone, when nothing of it is under way
//             and what waits for a disk ends so
//
// Flushes that wait become one: at most one fdatasync(2) runs, and a flush that comes meanwhile has
// part in the next one.
//
// Limits: for each connection those of LimitServer(), which come to 64 requests and 64 MiB; for all
// the pool of buffers. What would be more is refused with RESOURCE_EXHAUSTED, and was not run.
//
// Threads: handlers on the engine's thread. The rest from one thread.
// Lifetime: device, engine and buffers outlive it; it outlives the server. REQUIRES: the engine has
//   a thread of its own, or is driven by another one while this is destroyed.
// Errors: as block.proto says.
// Invariants: a request is carried out only while its session is kOpen, and a session is told to
//   its client only when nothing of its client's earlier ones can still be carried out.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "embed/nbdkit/block.weft.h"
#include "embed/nbdkit/block_device.h"
#include "embed/nbdkit/disk_pool.h"
#include "transport/buffer_pool.h"
#include "weft/coroutine.h"
#include "weft/engine.h"
#include "weft/server.h"
#include "weft/service.h"

namespace weft::embed {

class BlockService final : public wire::Block::Service {
 public:
  // As many as nbdkit has for one connection.
  static constexpr int kDefaultThreads = 16;
  // All clients' payloads that are under way.
  static constexpr uint64_t kDefaultBufferBytes = uint64_t{256} << 20;

  BlockService(BlockDevice& device, Engine& engine, BufferPool& buffers, int threads);
  ~BlockService() override;

  // What one connection may ask of a server of this service.
  static void LimitServer(ServerOptions* options);

  // Ends all sessions' streams, so that a server's Shutdown() need not wait for them. What is under
  // way goes on. Any thread.
  void EndSessions();

  void StartAttach(const wire::AttachRequest& request,
                   ServerWriter<wire::AttachReply> stream) override;
  void StartRead(UnaryCall<wire::ReadRequest, wire::ReadReply> call) override;
  void StartWrite(UnaryCall<wire::WriteRequest, wire::WriteReply> call) override;
  void StartFlush(UnaryCall<wire::FlushRequest, wire::FlushReply> call) override;
  void StartTrim(UnaryCall<wire::TrimRequest, wire::TrimReply> call) override;
  void StartZero(UnaryCall<wire::ZeroRequest, wire::ZeroReply> call) override;
  void StartExtents(UnaryCall<wire::ExtentsRequest, wire::ExtentsReply> call) override;

 private:
  struct Session;
  struct Leave {
    void operator()(Session* session) const { session->service->OnRequestOver(*session); }
  };
  // A request under way. Released when nothing of it can reach the disk any more; on any thread.
  using Ticket = std::unique_ptr<Session, Leave>;

  enum class State : uint8_t { kWaiting = 1, kOpen = 2, kClosed = 3 };
  struct Session {
    BlockService* service = nullptr;
    std::string client;
    uint64_t epoch = 0;  // that it was told
    // Any thread. Written by the engine's, but for under_way.
    std::atomic<State> state{State::kWaiting};
    std::atomic<uint32_t> under_way{0};
    DiskPool::Lane lane;
    // Engine thread only.
    std::optional<ServerWriter<wire::AttachReply>> stream;  // none: it has ended
    wire::AttachReply told;
  };
  struct WaitingFlush {
    UnaryCall<wire::FlushRequest, wire::FlushReply> call;
    Ticket ticket;
  };
  enum class Kind : uint8_t { kReads = 1, kWrites = 2 };

  absl::StatusOr<Ticket> Admit(uint64_t session, uint64_t offset, uint64_t bytes, Kind kind);
  static Ticket Enter(Session& session);
  void OnRequestOver(Session& session);
  void Close(Session& session, absl::Status why);
  void Sweep();
  void PostOnEngine(Function<void()> task);
  void Open(uint64_t number, Session& session);
  bool HasEarlierSession(const Session& waiting) const;
  // Work(device) on a thread of the pool, and its status as the call's end.
  template <class Call, class Work>
  void RunOnDisk(Call call, Ticket ticket, Work work);
  // Of a request that changes a range and brings no bytes: checks it, and runs `change` of the
  // device and the request.
  template <class Call, class Change>
  void ChangeOnDisk(Call call, Change change);
  void ReadInline(UnaryCall<wire::ReadRequest, wire::ReadReply> call, Ticket ticket);
  void RunFlushes();

  BlockDevice& device_;
  Engine& engine_;
  BufferPool& buffers_;

  // Of sessions_. Written by the engine's thread, before the session's state.
  std::atomic<uint32_t> closed_sessions_{0};
  // Engine thread only. Sessions stay where they are while something of them is under way.
  std::unordered_map<uint64_t, Session> sessions_;

  Alarm sweep_;

  std::mutex flush_mutex_;
  std::vector<WaitingFlush> flushes_;  // guarded by flush_mutex_
  bool is_flushing_ = false;           // guarded by flush_mutex_
  DiskPool::Lane flush_lane_;

  std::unique_ptr<DiskPool> disks_;  // goes first: its tasks use the rest
};

}  // namespace weft::embed
