// A transport that ends where it begins: client and server on one engine, messages in one array.
// What a call costs over it is the cost of rpc/ itself: no provider, no framing, no threads.
//
// A connection holds kSlots messages of up to kSlotBytes that nobody has taken; more find no
// credit.
//
// Threads: one. Not simulated: failures.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/engine.h"
#include "transport/prefetch_list.h"
#include "transport/transport.h"

namespace weft::test {

// One-sided operations are not simulated: all are refused.
class NoRemoteAccess : public RemoteAccess {
 public:
  absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan, Access) override {
    return absl::UnimplementedError("loopback");
  }
  absl::StatusOr<Posted> Post(TransferKind, absl::Span<const Transfer>, Operation*) override {
    return absl::UnimplementedError("loopback");
  }
  bool MoveNow(TransferKind, MutableByteSpan, const RemoteSpan&) override { return false; }
  absl::StatusOr<Posted> WriteThenSend(absl::Span<const Transfer>, ByteSpan, Operation*) override {
    return absl::UnimplementedError("loopback");
  }
  bool Reclaim(std::unique_ptr<Region>, Operation*) override { return true; }
  absl::Status Resolve(const RegionHandle&, uint64_t, uint64_t, Lease*) override {
    return absl::UnimplementedError("loopback");
  }
  absl::Status Renew(uint64_t, Lease*) override { return absl::UnimplementedError("loopback"); }
  void Return(Lease*) override {}
  absl::Status Derive(const RegionHandle&, uint64_t, uint64_t, Rights, uint64_t,
                      Derivation*) override {
    return absl::UnimplementedError("loopback");
  }
  absl::Status FetchAdd(const RemoteSpan&, uint64_t, AtomicOperation*) override {
    return absl::UnimplementedError("loopback");
  }
  absl::Status CompareSwap(const RemoteSpan&, uint64_t, uint64_t, AtomicOperation*) override {
    return absl::UnimplementedError("loopback");
  }
  absl::Status Probe(Operation*) override { return absl::UnimplementedError("loopback"); }
};

class LoopbackConnection : public Connection {
 public:
  static constexpr size_t kSlots = 64;
  static constexpr size_t kSlotBytes = 8192;

  LoopbackConnection() : LoopbackConnection(nullptr) {}
  // `memory`: in the place of one that refuses everything; null: that one. Outlives this.
  explicit LoopbackConnection(RemoteAccess* memory)
      : Connection(&always_full_, memory == nullptr ? &no_access_ : memory, &PrefetchList::None()),
        slots_(std::make_unique<Slot[]>(kSlots)) {
    facts_.path.kind = PathKind::kSim;
    facts_.path.provider = "loopback";
    eager_bytes_ = kSlotBytes;
  }

  absl::StatusOr<std::byte*> Reserve(size_t bytes) override {
    if (bytes > kSlotBytes) return absl::InvalidArgumentError("larger than a loopback slot");
    if (state_ != State::kOpen) return absl::FailedPreconditionError("not open");
    if (head_ - tail_ == kSlots) {
      stalled_ = true;
      return absl::ResourceExhaustedError("no loopback slot");
    }
    return slots_[head_ % kSlots].data;
  }
  uint64_t Commit(size_t bytes) override {
    slots_[head_ % kSlots].bytes = bytes;
    return head_++;
  }
  void Abandon() override {}
  void Flush() override {}
  uint64_t first_unsent() const override { return tail_; }
  void Close(std::string_view) override { closing_ = true; }
  ConnectionStats stats() const override { return {}; }

 private:
  friend class LoopbackTransport;
  struct Slot {
    alignas(64) std::byte data[kSlotBytes];
    size_t bytes;
  };

  MessageSpace AppendSlowly(size_t bytes) override {
    const absl::StatusOr<std::byte*> space = Reserve(bytes);
    if (!space.ok()) return {};
    return {*space, Commit(bytes)};
  }

  // Hands this end's messages to the other one.
  int Deliver() {
    int count = 0;
    for (; tail_ != head_ && peer_->state_ == State::kOpen; ++count) {
      const Slot& slot = slots_[tail_ % kSlots];
      peer_->handler_->OnMessage(*peer_, ByteSpan(slot.data, slot.bytes));
      ++tail_;
    }
    if (count > 0 && std::exchange(stalled_, false)) handler_->OnWritable(*this);
    return count;
  }

  MessageRoom always_full_{0};
  NoRemoteAccess no_access_;
  const std::unique_ptr<Slot[]> slots_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
  bool stalled_ = false;
  bool closing_ = false;
  LoopbackConnection* peer_ = nullptr;
  ConnectionHandler* handler_ = nullptr;
};

class LoopbackTransport final : public Transport {
 public:
  Exports& exports() override { std::abort(); }
  ~LoopbackTransport() override {
    for (const auto& pair : pairs_) End(*pair);
  }

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string&, const ListenOptions& options,
                                                   Acceptor* acceptor) override {
    acceptor_ = acceptor;
    hello_ = options.hello;
    return std::unique_ptr<Listener>(std::make_unique<LoopbackListener>());
  }

  absl::StatusOr<Connection*> Connect(const std::string&, const ConnectOptions& options,
                                      ConnectionHandler* handler) override {
    auto pair = std::make_unique<Pair>();
    LoopbackConnection& client = (*pair)[0];
    LoopbackConnection& server = (*pair)[1];
    client.peer_ = &server;
    server.peer_ = &client;
    client.facts_.peer_hello = hello_;
    server.facts_.peer_hello = options.hello;
    client.handler_ = handler;
    absl::StatusOr<ConnectionHandler*> accepted = acceptor_->OnIncoming(server);
    if (!accepted.ok()) return accepted.status();
    server.handler_ = *accepted;
    pairs_.push_back(std::move(pair));
    return &client;
  }

  int Poll(int, uint64_t) override {
    int count = 0;
    for (size_t i = 0; i < pairs_.size(); ++i) count += Advance(*pairs_[i]);
    return count;
  }
  void FlushAll() override {}
  bool Arm() override { return false; }

 private:
  using Pair = std::array<LoopbackConnection, 2>;
  class LoopbackListener final : public Listener {
    const std::string& address() const override { return address_; }
    const std::string address_ = "loopback";
  };

  static int Advance(Pair& pair) {
    for (LoopbackConnection& end : pair) {
      if (end.state_ != Connection::State::kConnecting) continue;
      end.state_ = Connection::State::kOpen;
      end.handler_->OnOpen(end);
    }
    const int count = pair[0].Deliver() + pair[1].Deliver();
    if (pair[0].closing_ || pair[1].closing_) End(pair);
    return count;
  }

  static void End(Pair& pair) {
    for (LoopbackConnection& end : pair) {
      if (std::exchange(end.state_, Connection::State::kClosed) == Connection::State::kClosed) {
        continue;
      }
      end.handler_->OnClosed(end, absl::CancelledError("loopback closed"));
    }
  }

  Acceptor* acceptor_ = nullptr;
  std::string hello_;
  std::vector<std::unique_ptr<Pair>> pairs_;
};

// An engine with a loopback of its own, for whoever calls.
inline absl::StatusOr<std::unique_ptr<EngineCore>> OpenLoopbackEngine() {
  EngineOptions options;
  options.drive = EngineOptions::Drive::kCaller;
  options.spin_ns = kSpinForever;
  return EngineCore::Create(options, [](const EngineContext&) {
    return absl::StatusOr<std::unique_ptr<Transport>>(std::make_unique<LoopbackTransport>());
  });
}

}  // namespace weft::test
