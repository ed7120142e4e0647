// What comes to a TLS stream out of its socket, for a fuzzer.
//
// The first byte chooses the side of ours, and how both prove who they are. Then come pieces: bytes
// of a real peer, which another stream makes, whole, changed, cut, doubled or out of order; bytes
// of the fuzzer's; and what this side reads and writes in between. Or the peer has the key, and
// seals what the fuzzer likes.

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/testing/fuzz_input.h"
#include "transport/descriptor.h"
#include "transport/tls/testing/certificates.h"
#include "transport/tls/testing/openssl_peer.h"
#include "transport/tls/tls_credentials.h"
#include "transport/tls/tls_records.h"
#include "transport/tls/tls_stream.h"

namespace weft {
namespace {

constexpr int kMostEvents = 40;
constexpr std::string_view kSaid = "said by a peer that has proved who it is";

// What all inputs share. Keys are new in each process: what a corpus says of them is where they
// stand, not what they are.
struct Host {
  Host() {
    const TestAuthority authority;
    const CertificateAndKey leaf = authority.Sign({});
    SecurityOptions certified;
    certified.certificate_pem = leaf.certificate_pem;
    certified.key_pem = leaf.key_pem;
    certified.roots_pem = authority.certificate_pem();
    SecurityOptions with_psk;
    with_psk.psk_name = "key";
    with_psk.psk_secret = std::string(kMinPskBytes, 's');
    credentials[0][0] = TlsCredentials::Create(TlsRole::kClient, certified).value();
    credentials[0][1] = TlsCredentials::Create(TlsRole::kServer, certified).value();
    credentials[1][0] = TlsCredentials::Create(TlsRole::kClient, with_psk).value();
    credentials[1][1] = TlsCredentials::Create(TlsRole::kServer, with_psk).value();
  }
  std::unique_ptr<TlsCredentials> credentials[2][2];  // [psk][server]
  TlsScratch ours;
  TlsScratch theirs;
};

// A stream and the other end of its socket.
struct End {
  End() {
    int ends[2];
    WEFT_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    socket.Reset(ends[0]);
    wire.Reset(ends[1]);
    stream = std::make_unique<TlsStream>(socket.get());
  }
  // What it has sent since.
  std::string Sent() {
    std::string all;
    char bytes[16 << 10];
    for (ssize_t count; (count = ::recv(wire.get(), bytes, sizeof(bytes), 0)) > 0;) {
      all.append(bytes, static_cast<size_t>(count));
    }
    return all;
  }
  void Give(std::string_view bytes) {
    if (!bytes.empty()) (void)::send(wire.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  std::string Read() {
    char bytes[600];
    const iovec pieces[2] = {{bytes, 100}, {bytes + 100, 500}};
    seen_bytes = 100 - seen_bytes;  // each second time all of it is unseen
    const ssize_t count = stream->Read(pieces, 2, seen_bytes);
    return count > 0 ? std::string(bytes, static_cast<size_t>(count)) : std::string();
  }
  void Write(std::string_view text) {
    const iovec piece = {const_cast<char*>(text.data()), text.size()};
    const ssize_t count = stream->Write(&piece, 1);
    WEFT_CHECK(count <= static_cast<ssize_t>(text.size()));
  }
  Descriptor socket;
  Descriptor wire;
  std::unique_ptr<TlsStream> stream;
  size_t seen_bytes = 0;
};

void Change(FuzzInput& input, std::string* bytes) {
  if (bytes->empty()) return;
  const size_t at = input.U16() % bytes->size();
  switch (input.Below(4)) {
    case 0:
      (*bytes)[at] = static_cast<char>(input.U8());
      break;
    case 1:
      bytes->erase(at, 1 + input.U8());
      break;
    case 2:
      bytes->insert(at, input.Text(input.U8()));
      break;
    case 3:
      bytes->resize(at);
      break;
  }
}

// A peer with the right key, whose records open, and say anything.
void RunWithTheKey(Host* host, bool server, FuzzInput input) {
  constexpr uint16_t kAes256GcmSha384 = 0x1302;
  const TlsRole theirs = server ? TlsRole::kClient : TlsRole::kServer;
  End ours;
  WEFT_CHECK(ours.stream
                 ->Start(host->credentials[1][server].get(), &host->ours, 0,
                         server ? std::string_view() : "localhost")
                 .ok());
  OpensslPeer peer(theirs, ours.wire.get(), "key", std::string(kMinPskBytes, 's'));
  for (int i = 0; i < 10 && ours.stream->state() == TlsStream::State::kHandshake; ++i) {
    ours.stream->Flush();
    peer.Shake();
  }
  WEFT_CHECK(ours.stream->has_own_records());
  const auto forger = TlsRecords::Create(kAes256GcmSha384, theirs, peer.secrets());
  WEFT_CHECK(forger != nullptr);
  std::string said, heard, record;
  bool said_all = true;  // what is said from here on need not be heard: it is not in order
  const auto seal = [&](uint8_t kind, std::string_view content) {
    const iovec piece = {const_cast<char*>(content.data()), content.size()};
    IovecCursor from(&piece, 1);
    record.resize(content.size() + TlsRecords::kAddedBytes + TlsRecords::kKeyUpdateBytes);
    record.resize(forger->Seal(static_cast<TlsRecords::Kind>(kind), &from, content.size(),
                               reinterpret_cast<std::byte*>(record.data())));
  };
  for (int i = 0; i < kMostEvents && input.more(); ++i) {
    switch (input.Below(8)) {
      case 0: {  // any content of any kind, padded or not
        seal(input.U8(), input.Text(input.U8()));
        ours.Give(record);
        said_all = false;
        break;
      }
      case 1: {  // a message of TLS's own, as it should be or nearly
        std::string message("\x18\0\0\x01\0", 5);
        message[input.Below(5)] = static_cast<char>(input.U8());
        seal(22, message);
        ours.Give(record);
        said_all = false;
        break;
      }
      case 2: {
        record.resize(TlsRecords::kKeyUpdateBytes);
        forger->SealKeyUpdate(input.Bit(), reinterpret_cast<std::byte*>(record.data()));
        ours.Give(record);
        break;
      }
      case 3:  // the last one, once more, changed or not
        Change(input, &record);
        ours.Give(record);
        said_all = false;
        break;
      case 4:
        ours.Write(std::string(1 + input.U8() * 80, 'w'));
        ours.Sent();
        break;
      case 5:
        ours.Give(input.Text(input.U8()));
        said_all = false;
        break;
      default: {
        const std::string content(1 + input.U8() * (input.Bit() ? 64 : 1), static_cast<char>(i));
        seal(23, content);
        ours.Give(record);
        if (said_all) said += content;
      }
    }
    ours.stream->Flush();
    heard += ours.Read();
    WEFT_CHECK(ours.stream->unsent() <= TlsStream::kMaxUnsentBytes);
    WEFT_CHECK(ours.stream->reserved() <= TlsStream::kMaxUnsentBytes + TlsStream::kMaxReadBytes);
    WEFT_CHECK((ours.stream->state() == TlsStream::State::kFailed) == !ours.stream->error().ok());
    // In order, and as it was sealed; what comes behind mischief is not looked at.
    const size_t known = std::min(said.size(), heard.size());
    WEFT_CHECK(std::string_view(heard).substr(0, known) == std::string_view(said).substr(0, known));
  }
}

void Run(Host* host, FuzzInput input) {
  const uint8_t how = input.U8();
  if ((how & 12) == 12) return RunWithTheKey(host, (how & 1) != 0, input);
  const bool server = (how & 1) != 0;
  const bool psk = (how & 2) != 0;
  End ours, theirs;
  WEFT_CHECK(ours.stream
                 ->Start(host->credentials[psk][server].get(), &host->ours, 0,
                         server ? std::string_view() : "localhost")
                 .ok());
  WEFT_CHECK(theirs.stream
                 ->Start(host->credentials[psk][!server].get(), &host->theirs, 0,
                         server ? "localhost" : std::string_view())
                 .ok());
  std::string kept;
  std::string heard;
  for (int i = 0; i < kMostEvents && input.more(); ++i) {
    switch (input.Below(12)) {
      case 0:
        ours.Give(input.Text(input.U8()));
        break;
      case 1: {
        std::string bytes = theirs.Sent();
        Change(input, &bytes);
        ours.Give(bytes);
        break;
      }
      case 2:  // later, once or twice
        kept = theirs.Sent();
        break;
      case 3:
        ours.Give(kept);
        break;
      case 4:
        ours.Write(std::string(1 + input.U8() * 80, 'w'));
        break;
      case 5:
        if (theirs.stream->state() == TlsStream::State::kUp) theirs.Write(kSaid);
        break;
      case 6:
        ours.stream->End();
        break;
      case 7:
        ::shutdown(ours.wire.get(), SHUT_WR);
        break;
      default:
        theirs.Give(ours.Sent());
        theirs.stream->Flush();
        theirs.Read();
        ours.Give(theirs.Sent());
    }
    ours.stream->Flush();
    heard += ours.Read();
    WEFT_CHECK(ours.stream->unsent() <= TlsStream::kMaxUnsentBytes);
    WEFT_CHECK((ours.stream->state() == TlsStream::State::kFailed) == !ours.stream->error().ok());
    if (ours.stream->state() == TlsStream::State::kUp) {
      std::byte secret[16];
      (void)ours.stream->identity();
      WEFT_CHECK(ours.stream->Export("fuzz", {}, secret).ok());
    }
    // Nothing comes out of it but what the peer has said, in order, and only after its proof.
    for (size_t at = 0; at < heard.size(); ++at) WEFT_CHECK(heard[at] == kSaid[at % kSaid.size()]);
  }
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const host = new weft::Host;
  weft::Run(host, weft::FuzzInput(data, size));
  return 0;
}
