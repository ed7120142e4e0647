// A peer of a tcp link that the test plays byte by byte: a socket whose other end is the link's.
//
// The two are a pair of Unix sockets, so that what one has sent is there for the other at once:
// when nothing more is to be done (TcpSettle()), nothing more is on its way.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/bytes.h"
#include "gtest/gtest.h"
#include "transport/descriptor.h"
#include "transport/link.h"
#include "transport/tcp/tcp_frame.h"
#include "transport/tcp/testing/tcp_side.h"
#include "transport/tls/tls_stream.h"

namespace weft {

// Polls until nothing more is to be done, and no socket has anything.
inline void TcpSettle(std::initializer_list<TcpSide*> sides) {
  const auto rest = [&] {
    for (TcpSide* side : sides) {
      if (!side->domain->Arm() || side->IsReadable()) return false;
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
  TcpRawPeer(TcpSide& side, LinkEnd& end, uint64_t token = 4711, int buffer_bytes = 0)
      : side_(side), secret_(TcpTestSecret()) {
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
    peer.secret = secret_;
    peer.kernel_tls = TcpTestByKernel();
    const int ups = end.ups;
    end.link = std::move(side.domain->Accept(peer, &end)).value();
    EXPECT_TRUE(side.domain->TakeSocket(std::move(theirs), {token, ~token}).ok());
    stream_.emplace(socket_.get());
    if (secret_.has_value()) StartTls(peer);
    TcpSettle({&side});
    EXPECT_EQ(end.ups, ups + 1) << end.down_status;
    EXPECT_EQ(Read().size(), kWelcomeBytes);
  }

  // What the socket takes, or has, now, as send(2) and recv(2): nobody is polled.
  ssize_t WriteSome(std::string_view bytes) {
    const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
    return stream_->Write(&piece, 1);
  }
  ssize_t ReadSome(char* place, size_t bytes) {
    const iovec piece{place, bytes};
    return stream_->Read(&piece, 1);
  }
  // Bytes as they are. False: the link takes no more, or is closed.
  bool Write(std::string_view bytes) {
    while (!bytes.empty()) {
      ssize_t sent = WriteSome(bytes);
      if (sent <= 0) {
        TcpSettle({&side_});
        sent = WriteSome(bytes.substr(0, 1));
        if (sent != 1) return false;
      }
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    TcpSettle({&side_});
    while (stream_->unsent() > 0) {
      const size_t unsent = stream_->unsent();
      stream_->Flush();
      TcpSettle({&side_});
      if (stream_->unsent() == unsent) return false;
    }
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
      const ssize_t count = ReadSome(buffer, std::min(sizeof(buffer), most - bytes.size()));
      if (count <= 0) {
        // The rest of a TLS record may still be on its way.
        TcpSettle({&side_});
        if (stream_->state() != TlsStream::State::kUp || !HasBytes()) break;
        continue;
      }
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
    const ssize_t count = ReadSome(&byte, 1);
    EXPECT_LE(count, 0);
    return count == 0 || (count < 0 && errno != EAGAIN);
  }

  void Close() {
    stream_.reset();
    socket_.Reset();
    TcpSettle({&side_});
  }
  int fd() const { return socket_.get(); }

 private:
  bool HasBytes() const {
    char byte;
    return ::recv(socket_.get(), &byte, 1, MSG_PEEK) > 0;
  }
  void StartTls(const LinkPeer& peer) {
    static TlsCredentials* const credentials =
        TlsCredentials::CreateForKeys(TlsRole::kClient).value().release();
    char name[33];
    std::snprintf(name, sizeof(name), "%016llx%016llx", static_cast<unsigned long long>(peer.nonce),
                  static_cast<unsigned long long>(peer.nonce_low));
    name_ = name;
    EXPECT_TRUE(stream_->Start(credentials, &scratch_, 0, {}, {}, TlsKey{name_, *secret_}).ok());
    for (int i = 0; i < 4; ++i) {
      stream_->Flush();
      TcpSettle({&side_});
    }
    EXPECT_EQ(stream_->state(), TlsStream::State::kUp) << stream_->error();
  }
  TcpSide& side_;
  const std::optional<LinkSecret> secret_;
  std::string name_;
  TlsScratch scratch_;
  Descriptor socket_;
  std::optional<TlsStream> stream_;
  uint32_t sequence_ = 0;
  uint32_t received_ = 0;
};

}  // namespace weft
