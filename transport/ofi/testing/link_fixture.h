// A small language for tests of links: a Side is a domain with one link and a log of what it was
// told. Used within one process (two Sides) and across two (one Side in each).
//
//   a.Connect(b); b.Send("x"); RunUntil([&] { return a.received.size() == 1; });
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/testing/descriptors.h"
#include "gtest/gtest.h"
#include "transport/devices/rdma_choice.h"
#include "transport/link.h"
#include "transport/ofi/ofi.h"
#include "transport/shm/shm.h"
#include "transport/testing/link_end.h"
#include "transport/testing/post.h"

namespace weft {

// An RDMA port of this machine that tests may use.
struct TestRdmaPort {
  std::string device;
  std::string host;
  LinkKind link = LinkKind::kUnknown;
};
inline std::optional<TestRdmaPort> FindTestRdmaPort(bool v6 = false) {
  RdmaSources sources;
  sources.interfaces = ReadInterfaceAddresses();
  for (const RdmaOffer& offer :
       ChooseRdma(ReadRdmaPorts(sources), RdmaFilter{}, ReadRdmaProcessFacts(0))) {
    const bool is_v6 = offer.address.host.find(':') != std::string::npos;
    if (offer.unusable.empty() && is_v6 == v6)
      return TestRdmaPort{offer.device, offer.address.host, offer.link};
  }
  return std::nullopt;
}

// What links are tested on: verbs only where there is RDMA.
inline std::vector<PathKind> TestedPaths() {
  std::vector<PathKind> kinds = {PathKind::kShm, PathKind::kOfiTcp};
  if (FindTestRdmaPort().has_value()) kinds.push_back(PathKind::kVerbs);
  return kinds;
}

// The memory of the shm link that is being brought up in this process: both ends get it by the
// link's nonce. RunUntil() closes it.
class LinkMemoryInHand {
 public:
  static int Of(uint64_t nonce, LinkDomain* passive) {
    if (fd_ < 0 || nonce != nonce_) {
      Close();
      nonce_ = nonce;
      fd_ = passive->NewLinkMemory().value();
    }
    return fd_;
  }
  static void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  static inline uint64_t nonce_ = 0;
  static inline int fd_ = -1;
};

struct Side final : BatchSink {
  static absl::StatusOr<std::unique_ptr<LinkDomain>> OpenDomain(PathKind kind,
                                                                const OfiOptions& options) {
    if (kind == PathKind::kShm) {
      ShmOptions shm;
      shm.sink = options.sink;
      shm.slot_bytes = std::min(options.slot_bytes, kMaxShmSlotBytes);
      shm.max_outstanding_operations = options.max_outstanding_operations;
      shm.max_pool_bytes = options.max_pool_bytes;
      return OpenShmDomain(shm);
    }
    return kind == PathKind::kOfiTcp ? OpenOfiTcpDomain(options) : OpenVerbsDomain(options);
  }

  explicit Side(PathKind kind, OfiOptions options = {}, std::string host = "127.0.0.1") {
    options.sink = this;
    options.bind_address = std::move(host);
    if (kind == PathKind::kVerbs) {
      const TestRdmaPort port = *FindTestRdmaPort();
      options.bind_address = port.host;
      options.device = port.device;
      options.link = port.link;
    }
    auto opened = OpenDomain(kind, options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (opened.ok()) domain = *std::move(opened);
  }

  void OnReceived(ByteSpan batch, LinkHandler*) override {
    received.emplace_back(AsStringView(batch));
    if (const auto act = on_received; act) act();  // which may set another
  }

  LinkPeer PeerOf(const Side& other, uint64_t nonce) const {
    LinkPeer peer;
    peer.address = other.domain->address();
    peer.nonce = nonce;
    if (domain->path().kind == PathKind::kShm) {
      peer.process_id = getpid();
      peer.host_descriptor = other.domain->host_descriptor();
      peer.memory_descriptor = LinkMemoryInHand::Of(nonce, domain.get());
    }
    return peer;
  }

  absl::Status Send(std::string_view text) { return Send(endpoint, text); }
  absl::Status Send(LinkEnd& to, std::string_view text) {
    const SendSlot slot = to.link->TakeSlot(static_cast<uint32_t>(text.size()));
    if (slot.data == nullptr) return absl::ResourceExhaustedError("no slot");
    std::copy(text.begin(), text.end(), reinterpret_cast<char*>(slot.data));
    return to.link->Send(slot, static_cast<uint32_t>(text.size()));
  }

  // Declared first: destroyed last.
  std::unique_ptr<LinkDomain> domain;
  LinkEnd endpoint;
  std::vector<std::string> received;
  std::function<void()> on_received;
};

// Memory of `owner` that `reader` reads over its link: more than two sockets hold, so over ofi_tcp
// the answer has no room after a part of it.
class LongRead {
 public:
  LongRead(Side& owner, Side& reader)
      : remote_(owner.domain->Register(MutableByteSpan(there_), Access::kRemoteRead)),
        local_(reader.domain->Register(MutableByteSpan(here_), Access::kLocalOnly)) {
    EXPECT_TRUE(remote_.ok() && local_.ok());
  }

  // By `link` of the reader's.
  absl::Status Start(Link& link, Operation* read) {
    std::fill(here_.begin(), here_.end(), std::byte{0});
    return Read(link, **local_, 0, (*remote_)->remote(), read);
  }
  // All of the last one has come.
  bool IsThere() const { return here_ == there_; }

 private:
  static constexpr size_t kBytes = 32 << 20;
  std::vector<std::byte> there_ = std::vector<std::byte>(kBytes, std::byte{7});
  std::vector<std::byte> here_ = std::vector<std::byte>(kBytes);
  absl::StatusOr<std::unique_ptr<Region>> remote_;
  absl::StatusOr<std::unique_ptr<Region>> local_;
};

// Polls all domains in turn until `done`. False: it did not come about.
template <class Done>
bool RunUntil(std::initializer_list<Side*> sides, Done done) {
  LinkMemoryInHand::Close();
  const auto give_up = std::chrono::steady_clock::now() + kTestPatience;
  while (!done()) {
    for (Side* side : sides) side->domain->Poll(64);
    if (std::chrono::steady_clock::now() > give_up) return false;
  }
  return true;
}

// A link between the two, from `a`'s side, up once more at both ends when this returns.
inline void LinkEnds(Side& a, LinkEnd& of_a, Side& b, LinkEnd& of_b, uint64_t nonce) {
  const int ups_of_a = of_a.ups + 1;
  const int ups_of_b = of_b.ups + 1;
  auto passive = b.domain->Accept(b.PeerOf(a, nonce), &of_b);
  ASSERT_TRUE(passive.ok()) << passive.status();
  of_b.link = *std::move(passive);
  auto active = a.domain->Connect(a.PeerOf(b, nonce), &of_a);
  ASSERT_TRUE(active.ok()) << active.status();
  of_a.link = *std::move(active);
  ASSERT_TRUE(RunUntil({&a, &b}, [&] { return of_a.ups == ups_of_a && of_b.ups == ups_of_b; }))
      << of_a.down_status << of_b.down_status;
}

inline size_t ShmFiles() { return EntriesOf("/dev/shm").size(); }

}  // namespace weft
