// A peer of a tcp link that the test plays byte by byte: a socket whose other end is the link's.
//
// The two are a pair of Unix sockets, so that what one has sent is there for the other at once:
// when nothing more is to be done (TcpSettle()), nothing more is on its way.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/bytes.h"
#include "gtest/gtest.h"
#include "transport/descriptor.h"
#include "transport/link.h"
#include "transport/tcp/tcp_frame.h"
#include "transport/tcp/testing/tcp_side.h"

namespace weft {

// Polls until nothing more is to be done.
inline void TcpSettle(std::initializer_list<TcpSide*> sides) {
  const auto rest = [&] {
    for (TcpSide* side : sides) {
      if (!side->domain->Arm()) return false;
    }
    return true;
  };
  while (!rest()) {
    for (TcpSide* side : sides) side->domain->Poll(64);
  }
}

inline std::string TcpSpanText(const RemoteSpan& span) {
  std::string text(kTcpSpanBytes, '\0');
  EncodeTcpSpan(reinterpret_cast<std::byte*>(text.data()), span);
  return text;
}

// A whole frame; its payload is padded.
inline std::string TcpFrameText(uint32_t sequence, TcpFrameKind kind, uint8_t flags,
                                uint32_t operation, std::string_view payload) {
  std::string text(kTcpHeaderBytes, '\0');
  EncodeTcpHeader(reinterpret_cast<std::byte*>(text.data()), kind, flags,
                  static_cast<uint32_t>(payload.size()), sequence, operation);
  text += payload;
  text.append(TcpPadding(payload.size()), '\0');
  return text;
}

// What a piece of a write has in front of its bytes.
inline std::string TcpWriteText(const RemoteSpan& at, std::string_view bytes) {
  return TcpSpanText(at).substr(0, kTcpWriteHeadBytes).append(bytes);
}

struct TcpSentFrame {
  TcpHeader header;
  std::string payload;
};

class TcpRawPeer {
 public:
  // `end` has a link to this peer, which is up. `buffer_bytes`: of both sockets; 0: as they come.
  TcpRawPeer(TcpSide& side, TcpEnd& end, uint64_t token = 4711, int buffer_bytes = 0)
      : side_(side) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    socket_ = Descriptor(ends[0]);
    Descriptor theirs(ends[1]);
    if (buffer_bytes > 0) {
      for (const int fd : ends) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes));
      }
    }
    LinkPeer peer;
    peer.nonce = token;
    peer.nonce_low = ~token;
    const int ups = end.ups;
    end.link = std::move(side.domain->Accept(peer, &end)).value();
    EXPECT_TRUE(side.domain->TakeSocket(std::move(theirs), {token, ~token}).ok());
    TcpSettle({&side});
    EXPECT_EQ(end.ups, ups + 1);
    EXPECT_EQ(Read().size(), kWelcomeBytes);
  }

  // Bytes as they are. False: the link takes no more, or is closed.
  bool Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        bytes.remove_prefix(static_cast<size_t>(sent));
      } else {
        TcpSettle({&side_});
        if (::send(socket_.get(), bytes.data(), 1, MSG_NOSIGNAL) != 1) return false;
        bytes.remove_prefix(1);
      }
    }
    TcpSettle({&side_});
    return true;
  }
  // The next frame.
  bool Send(TcpFrameKind kind, uint8_t flags, uint32_t operation, std::string_view payload) {
    return Write(Next(kind, flags, operation, payload));
  }
  std::string Next(TcpFrameKind kind, uint8_t flags, uint32_t operation, std::string_view payload) {
    return TcpFrameText(sequence_++, kind, flags, operation, payload);
  }

  // At most `most` bytes of what the link has sent; then it may send again.
  std::string Read(size_t most = ~size_t{0}) {
    std::string bytes;
    char buffer[64 << 10];
    while (bytes.size() < most) {
      const ssize_t count =
          ::recv(socket_.get(), buffer, std::min(sizeof(buffer), most - bytes.size()), 0);
      if (count <= 0) break;
      bytes.append(buffer, static_cast<size_t>(count));
      TcpSettle({&side_});
    }
    return bytes;
  }
  // The next frame that the link has sent; `header.length` 0 and no kind: there is none yet.
  TcpSentFrame ReadFrame() {
    TcpSentFrame frame;
    frame.header.kind = TcpFrameKind{0};
    const std::string head = Read(kTcpHeaderBytes);
    if (head.size() != kTcpHeaderBytes) return frame;
    frame.header = DecodeTcpHeader(AsBytes(head).data());
    EXPECT_EQ(frame.header.sequence, received_++);
    frame.payload = Read(frame.header.length + TcpPadding(frame.header.length));
    EXPECT_EQ(frame.payload.size(), frame.header.length + TcpPadding(frame.header.length));
    frame.payload.resize(frame.header.length);
    return frame;
  }
  // Whether the link has closed its socket. REQUIRES: everything has been read.
  bool IsClosed() {
    char byte;
    const ssize_t count = ::recv(socket_.get(), &byte, 1, MSG_PEEK);
    return count == 0 || (count < 0 && errno != EAGAIN);
  }

  void Close() {
    socket_.Reset();
    TcpSettle({&side_});
  }
  int fd() const { return socket_.get(); }

 private:
  TcpSide& side_;
  Descriptor socket_;
  uint32_t sequence_ = 0;
  uint32_t received_ = 0;
};

}  // namespace weft
