// A small language for tests of tcp links: a TcpSide is a domain with a listening socket beside it,
// as the control connection's listener is, and a log of what it was told.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "gtest/gtest.h"
#include "transport/descriptor.h"
#include "transport/link.h"
#include "transport/sockets/join.h"
#include "transport/sockets/socket.h"
#include "transport/sockets/unix_listener.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/tcp_frame.h"
#include "transport/testing/link_end.h"

namespace weft {

// All links of a test have a secret, and TLS, where the environment has WEFT_TEST_TLS.
inline std::optional<LinkSecret> TcpTestSecret() {
  if (std::getenv("WEFT_TEST_TLS") == nullptr) return std::nullopt;
  LinkSecret secret;
  secret.fill(std::byte{0x5e});
  return secret;
}

// WEFT_TEST_TLS=kernel: links have security, and the kernel makes their records.
inline bool TcpTestByKernel() {
  const char* const value = std::getenv("WEFT_TEST_TLS");
  return value != nullptr && std::string(value) == "kernel";
}

struct TcpSide final : BatchSink {
  explicit TcpSide(TcpOptions options = {}, const std::string& address = "127.0.0.1:0") {
    options.sink = this;
    auto opened = OpenTcpDomain(options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    domain = *std::move(opened);
    EXPECT_TRUE(domain->AddSlots(64, 64).ok());
    if (address.starts_with("unix:")) {
      unix_listener = std::move(UnixListener::Open(address.substr(5))).value();
      listening_fd = unix_listener->fd();
      listens_at = address;
    } else {
      listener = std::move(ListenInternet(ParseNumericAddress(address).value())).value();
      listening_fd = listener.get();
      listens_at = LocalAddress(listening_fd).value().text();
    }
  }

  void OnReceived(ByteSpan batch, LinkHandler*) override {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(batch.data()) % 8, 0u);
    received.emplace_back(AsStringView(batch));
    if (const auto act = on_received; act) act();  // which may set another
  }

  // Takes the sockets that have presented a join, as the control listener does.
  void Accept() {
    while (true) {
      Descriptor socket = std::move(AcceptClient(listening_fd)).value();
      if (!socket.valid()) break;
      strangers.push_back(std::move(socket));
    }
    for (size_t i = 0; i < strangers.size();) {
      std::array<std::byte, kJoinBytes> join;
      const ssize_t count = ::recv(strangers[i].get(), join.data(), join.size(), MSG_PEEK);
      if (count == static_cast<ssize_t>(join.size())) {
        EXPECT_EQ(::recv(strangers[i].get(), join.data(), join.size(), 0), count);
        EXPECT_EQ(LoadLe64(join.data()), kJoinMagic);
        last_join =
            domain->TakeSocket(std::move(strangers[i]),
                               Nonce128{LoadLe64(join.data() + 8), LoadLe64(join.data() + 16)});
      } else if (count > 0 || (count < 0 && errno == EAGAIN)) {
        ++i;
        continue;
      }
      strangers.erase(strangers.begin() + static_cast<ptrdiff_t>(i));
    }
  }

  void Poll() {
    Accept();
    domain->Poll(64);
  }

  // An engine that sleeps would be woken.
  bool IsReadable() const {
    pollfd asked = {domain->descriptor(), POLLIN, 0};
    return ::poll(&asked, 1, /*timeout=*/0) == 1;
  }

  absl::Status Send(LinkEnd& to, std::string_view text, bool wide = false) {
    const SendSlot slot =
        wide ? domain->AcquireWideSlot() : to.link->TakeSlot(static_cast<uint32_t>(text.size()));
    if (slot.data == nullptr) return absl::ResourceExhaustedError("no slot");
    std::copy(text.begin(), text.end(), reinterpret_cast<char*>(slot.data));
    return to.link->Send(slot, static_cast<uint32_t>(text.size()));
  }
  absl::Status Send(std::string_view text) { return Send(end, text); }

  // Declared first: destroyed last.
  std::unique_ptr<LinkDomain> domain;
  LinkEnd end;
  std::vector<std::string> received;
  std::function<void()> on_received;
  absl::Status last_join;
  Descriptor listener;
  std::unique_ptr<UnixListener> unix_listener;
  int listening_fd = -1;
  std::string listens_at;
  std::vector<Descriptor> strangers;
};

// Polls all in turn until `done`. False: it did not come about.
template <class Done>
bool TcpRunUntil(std::initializer_list<TcpSide*> sides, Done done) {
  const auto give_up = std::chrono::steady_clock::now() + kTestPatience;
  while (!done()) {
    for (TcpSide* side : sides) side->Poll();
    if (std::chrono::steady_clock::now() > give_up) return false;
  }
  return true;
}

// A link between the two, from `a`'s side, up once more at both ends when this returns.
inline void TcpLinkEnds(TcpSide& a, LinkEnd& of_a, TcpSide& b, LinkEnd& of_b, uint64_t nonce) {
  const int ups_of_a = of_a.ups + 1;
  const int ups_of_b = of_b.ups + 1;
  LinkPeer peer;
  peer.nonce = nonce;
  peer.nonce_low = ~nonce;
  peer.secret = TcpTestSecret();
  peer.kernel_tls = TcpTestByKernel();
  of_b.link = std::move(b.domain->Accept(peer, &of_b)).value();
  peer.address = b.listens_at;
  of_a.link = std::move(a.domain->Connect(peer, &of_a)).value();
  ASSERT_TRUE(TcpRunUntil({&a, &b}, [&] { return of_a.ups == ups_of_a && of_b.ups == ups_of_b; }))
      << of_a.down_status << of_b.down_status;
}

}  // namespace weft
