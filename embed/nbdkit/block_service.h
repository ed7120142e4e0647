// The service of block.proto on a BlockDevice.
//
// The engine's thread checks a request, and moves its payload between the client's memory and
// a buffer; a thread of the pool waits for the disk. What is in the page cache is read by the
// engine's thread itself, if it is small: that takes a microsecond, and a hand-over two wake-ups.
// (preadv2(2) with RWF_NOWAIT never waits for a disk.)
//
// Its clients have sessions (embed/server_sessions.h).
//
// What trims and zeroes has one thread to itself. The system carries out one such call on a file at
// a time anyway, and takes long where it has to write the zeros: on the pool's threads they would
// wait for each other, and nobody could read or write meanwhile.
//
// Flushes that wait become one: at most one fdatasync(2) runs, and a flush that comes meanwhile has
// part in the next one. What changes the device durably waits for a flush as well, instead of
// syncing by itself: the system tells one of those who sync a file that the medium has failed, and
// this way that one is known to all of them.
//
// Limits: for each connection those of LimitServer(), which come to 64 requests and 64 MiB; for all
// the pool of buffers, of which one client leaves some to others. What would be more is refused
// with RESOURCE_EXHAUSTED, and was not run.
//
// Threads: handlers on the engine's thread. The rest from one thread.
// Lifetime: device, engine and buffers outlive it; it outlives the server. REQUIRES: the engine has
//   a thread of its own, or is driven by another one while this is destroyed.
// Errors: as block.proto says.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/function.h"
#include "embed/nbdkit/block.weft.h"
#include "embed/nbdkit/block_device.h"
#include "embed/nbdkit/disk_pool.h"
#include "embed/server_sessions.h"
#include "transport/buffer_pool.h"
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

  // ServerSessions::End(). Any thread.
  void EndSessions() { sessions_.End(); }

  void StartAttach(const wire::AttachRequest& request,
                   ServerWriter<wire::AttachReply> stream) override;
  void StartRead(UnaryCall<wire::ReadRequest, wire::ReadReply> call) override;
  void StartWrite(UnaryCall<wire::WriteRequest, wire::WriteReply> call) override;
  void StartFlush(UnaryCall<wire::FlushRequest, wire::FlushReply> call) override;
  void StartTrim(UnaryCall<wire::TrimRequest, wire::TrimReply> call) override;
  void StartZero(UnaryCall<wire::ZeroRequest, wire::ZeroReply> call) override;
  void StartExtents(UnaryCall<wire::ExtentsRequest, wire::ExtentsReply> call) override;

 private:
  struct OfSession {};  // nothing more
  using Sessions = ServerSessions<wire::AttachReply, OfSession>;
  using Ticket = Sessions::Ticket;

  enum class Kind : uint8_t { kReads = 1, kWrites = 2 };

  absl::StatusOr<Ticket> Admit(uint64_t session, uint64_t offset, uint64_t bytes, Kind kind);
  void Open(Sessions::Session& session);
  // work(device, call) on a thread of the pool, and its status as the call's end.
  template <class Call, class Work>
  void RunOnDisk(Call call, Ticket ticket, Work work);
  // The same of change(device, request), of a request that is to be carried out. If it is to be
  // durable it ends with the next flush.
  template <class Call, class Change>
  void RunChange(DiskPool& threads, Call call, Ticket ticket, Change change);
  // Of a request that changes a range and brings no bytes: checks it, and runs it on range_thread_.
  template <class Call, class Change>
  void ChangeRange(Call call, Change change);
  // Finishes it with such a flush's status; ABORTED: another one has failed since it was admitted.
  template <class Call>
  void FinishWithFlush(Call call, Ticket ticket);
  // `done` with the status of a flush that begins after this. Any thread.
  void FlushAndThen(Function<void(const absl::Status&)> done);
  void ReadInline(UnaryCall<wire::ReadRequest, wire::ReadReply> call, Ticket ticket);
  void RunFlushes();

  BlockDevice& device_;

  Sessions sessions_;

  std::mutex flush_mutex_;
  // Guarded by flush_mutex_.
  std::vector<Function<void(const absl::Status&)>> flushes_;
  bool is_flushing_ = false;

  std::unique_ptr<DiskPool> disks_;         // its tasks use the rest
  std::unique_ptr<DiskPool> range_thread_;  // goes first: its tasks use disks_ as well
};

}  // namespace weft::embed
