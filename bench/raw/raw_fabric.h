// libfabric as it is, with nothing of Weft: what "raw" means in perf's tables.
//
// One endpoint to one peer, of the type that Weft uses: reliable datagram on shm, connection-
// oriented with a shared receive context on tcp and verbs. Everything is chosen for speed: no
// completion for sends, injected messages (where the device takes them), busy polling, on tcp no
// wait object (cheaper than a descriptor as long as there is one endpoint), on shm no copies by the
// kernel. The first byte of a message says what it is.
//
// Threads: one.
// Lifetime: both processes open at the same time; Open() returns when the path is up. Destroying it
//   closes the endpoint, and with it shm's file in /dev/shm.
// Errors: UNAVAILABLE with libfabric's words; a fabric that has failed once stays failed.
// Invariant: never more messages in flight than receives posted at the peer: the caller keeps at
//   most receives() of them.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft::bench {

// The first byte of a message.
enum class RawKind : uint8_t {
  kEcho = 1,     // to be answered with the same
  kOneWay = 2,   // confirmed by a kConfirm for every ConfirmEvery() of them
  kConfirm = 3,  // so many one-way messages have arrived
  kFence = 4,    // to be answered with the same, after all writes before it
  kBulk = 5,     // to be answered with the same, when its bytes have been written to us
  kOver = 6,     // the run is over
};

// Messages that are not what is measured: confirmations, requests for bulk, fences.
inline constexpr uint32_t kControlBytes = 64;
// kMaxOutstanding, their confirmations, a fence and the end: rounded up generously.
inline constexpr uint32_t kMaxInFlight = 256;

struct RawFabricOptions {
  std::string provider;                    // "shm", "tcp", "verbs"
  std::string host;                        // numeric, of both ends; shm has no use for it
  std::string device;                      // verbs: as libfabric names it, "mlx5_0"
  int peer_fd = -1;                        // a stream socket to the peer, for addresses and keys
  bool listens = false;                    // one side listens, the other connects
  uint32_t message_bytes = kControlBytes;  // of the largest message; at least kControlBytes
  bool has_region = false;                 // kRegionBytes for one-sided transfers, on both sides
};

// Deletes any fabric object.
struct RawCloser {
  template <class T>
  void operator()(T* object) const {
    fi_close(&object->fid);
  }
};
template <class T>
using RawPtr = std::unique_ptr<T, RawCloser>;

class RawFabric {
 public:
  static std::string LibraryVersion();
  static absl::StatusOr<std::unique_ptr<RawFabric>> Open(const RawFabricOptions& options);
  ~RawFabric();
  RawFabric(const RawFabric&) = delete;
  RawFabric& operator=(const RawFabric&) = delete;

  // Sends kControlBytes of that kind. False: the provider is busy; Poll() and try again. (Or it has
  // failed: status() tells.)
  bool Send(RawKind kind);
  // Sends a message of so many bytes (1 to message_bytes) of that kind. All that are on the way are
  // of one kind.
  bool SendData(RawKind kind, size_t bytes);

  // Writes `bytes` at `offset` of our region to the same offset of the peer's, or reads them from
  // there. False as for Send(). The completion of a write says that our memory is free again; a
  // message after it, that the bytes are there.
  bool Write(size_t offset, size_t bytes);
  bool Read(size_t offset, size_t bytes);

  // Makes progress. Calls on_message(RawKind) for each message and counts finished transfers.
  // Returns the number of messages.
  template <class OnMessage>
  int Poll(OnMessage&& on_message) {
    const int count = ReadCompletions();
    for (int i = 0; i < count; ++i) on_message(arrived_[i]);
    return count;
  }

  uint64_t transfers_done() const { return transfers_done_; }
  const absl::Status& status() const { return status_; }

 private:
  static constexpr int kBatch = 64;  // completions read at once

  RawFabric() = default;

  absl::Status Discover(const RawFabricOptions& options);
  absl::Status OpenDomain();
  absl::Status OpenShm(int peer_fd);
  absl::Status OpenMsg(const RawFabricOptions& options);
  absl::Status Listen(int peer_fd);
  absl::Status Connect(int peer_fd);
  absl::Status MakeMsgEndpoint(fi_info* info);
  absl::Status AwaitEvent(uint32_t wanted, fi_info** request);
  bool RegistersLocalMemory() const;
  absl::Status Register(std::vector<std::byte>& memory, uint64_t access, RawPtr<fid_mr>* opened);
  absl::Status PrepareMessages();
  absl::Status PrepareRegion(const RawFabricOptions& options);
  int PostReceive(std::byte* slot);  // whose address is the context, too
  bool Post(const std::byte* message, size_t bytes);
  bool Posted(int64_t result, const char* what);
  int ReadCompletions();
  void ReadError();
  void FailWith(int64_t result, const char* what);

  // Constant after Open(). Declared in the order of creation.
  fi_info* info_ = nullptr;
  size_t message_bytes_ = 0;
  size_t receives_ = 0;      // posted
  size_t inject_bytes_ = 0;  // as many at most
  RawPtr<fid_fabric> fabric_;
  RawPtr<fid_domain> domain_;
  RawPtr<fid_cq> completions_;
  RawPtr<fid_av> addresses_;       // shm
  RawPtr<fid_eq> events_;          // tcp, verbs
  RawPtr<fid_ep> shared_receive_;  // tcp, verbs
  RawPtr<fid_pep> listener_;       // tcp, verbs
  RawPtr<fid_ep> endpoint_;
  fid_ep* receive_endpoint_ = nullptr;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  std::vector<std::byte> messages_;  // the receives, a control message of each kind, the data
  std::byte* control_ = nullptr;     // in messages_
  std::byte* data_ = nullptr;        // to its end
  std::vector<std::byte> region_;
  RawPtr<fid_mr> messages_registration_;  // where local memory has to be registered
  RawPtr<fid_mr> registration_;           // of region_
  void* messages_descriptor_ = nullptr;
  uint64_t peer_key_ = 0;
  uint64_t peer_base_ = 0;  // address of the peer's region; 0 where it counts from there

  std::byte* next_data_ = nullptr;
  RawKind arrived_[kBatch];
  uint64_t transfers_done_ = 0;
  absl::Status status_;
};

}  // namespace weft::bench
