// What comes to a TLS stream out of its socket, for a fuzzer.
//
// The first byte chooses the side of ours, and how both prove who they are. Then come pieces: bytes
// of a real peer, which another stream makes, whole, changed, cut, doubled or out of order; bytes
// of the fuzzer's; and what this side reads and writes in between. Or the peer has the key, and
// seals what the fuzzer likes; or it is somebody that this side should not take; or there are no
// sockets and no handshakes, and records alone are made and opened, through many keys.

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/bytes.h"
#include "core/check.h"
#include "core/strings.h"
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
constexpr char kUri[] = "spiffe://example.org/either";  // of both sides' certificate
constexpr std::string_view kSaid = "said by a peer that has proved who it is";

// What all inputs share. Keys are new in each process: what a corpus says of them is where they
// stand, not what they are.
struct Host {
  Host() {
    const TestAuthority authority;
    LeafOptions names;
    names.alternative_names += StrCat(",URI:", kUri);
    const CertificateAndKey leaf = authority.Sign(names);
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
    SecurityOptions other = with_psk;
    other.psk_secret = std::string(kMinPskBytes, 'o');
    Add(kOtherSecret, other);
    other = with_psk;
    other.psk_name = "another";
    Add(kOtherName, other);
    other = certified;
    other.expected_uri = "spiffe://somebody/else";
    Add(kOtherUri, other);
    other = certified;
    other.server_name = "elsewhere";
    other.expected_uri = kUri;  // a server of this kind takes its clients by it
    Add(kOtherHost, other);
    other = certified;
    other.roots_pem = TestAuthority("another authority").certificate_pem();
    Add(kOtherRoots, other);
    other = certified;
    other.require_client_certificate = false;
    odd[kNoCertificate][1] = TlsCredentials::Create(TlsRole::kServer, other).value();
    other = {};
    other.roots_pem = authority.certificate_pem();
    odd[kNoCertificate][0] = TlsCredentials::Create(TlsRole::kClient, other).value();
  }
  enum Odd { kOtherSecret, kOtherName, kOtherUri, kOtherHost, kOtherRoots, kNoCertificate, kOdd };
  void Add(Odd which, const SecurityOptions& options) {
    odd[which][0] = TlsCredentials::Create(TlsRole::kClient, options).value();
    odd[which][1] = TlsCredentials::Create(TlsRole::kServer, options).value();
  }
  std::unique_ptr<TlsCredentials> credentials[2][2];  // [psk][server]
  std::unique_ptr<TlsCredentials> odd[kOdd][2];
  TlsScratch ours;
  TlsScratch theirs;
};

// A stream and the other end of its socket.
struct End {
  // `is_narrow`: its socket holds little.
  explicit End(bool is_narrow = false) {
    int ends[2];
    WEFT_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    if (is_narrow) {
      constexpr int kBytes = 4096;  // the kernel makes more of it
      ::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &kBytes, sizeof(kBytes));
    }
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

void Rarely(End& ours, FuzzInput& input) {
  switch (input.Below(4)) {
    case 0:
      if (ours.stream->state() == TlsStream::State::kUp) ours.stream->End();
      break;
    case 1:
      ::shutdown(ours.wire.get(), SHUT_WR);
      break;
    case 2:  // with bytes in it that nobody has read
      ours.wire.Reset();
      break;
    case 3:  // much at once, in pieces
      if (ours.stream->state() == TlsStream::State::kUp) {
        const std::string text(20'000, 'm');
        iovec pieces[5];
        for (iovec& piece : pieces) piece = {const_cast<char*>(text.data()), text.size()};
        (void)ours.stream->Write(pieces, 5);
      }
      break;
  }
  (void)ours.stream->has_pending();
  (void)ours.stream->resumed();
  (void)ours.stream->is_plain();
  (void)ours.stream->reserved();
}

// A peer with the right key, whose records open, and say anything.
void RunWithTheKey(Host* host, bool server, bool is_narrow, FuzzInput input) {
  constexpr uint16_t kAes256GcmSha384 = 0x1302;
  const TlsRole theirs = server ? TlsRole::kClient : TlsRole::kServer;
  End ours(is_narrow);
  WEFT_CHECK(ours.stream
                 ->Start(host->credentials[1][server].get(), &host->ours, 0,
                         server ? std::string_view() : "localhost")
                 .ok());
  OpensslPeer peer(theirs, ours.wire.get(), "key", std::string(kMinPskBytes, 's'));
  for (int i = 0; i < 10 && ours.stream->state() == TlsStream::State::kHandshake; ++i) {
    ours.stream->Flush();
    peer.Shake();
  }
  WEFT_CHECK(ours.stream->records_by() == TlsStream::RecordsBy::kWeft);
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
        if (!is_narrow || input.Bit()) ours.Sent();
        break;
      case 5:
        ours.Give(input.Text(input.U8()));
        said_all = false;
        break;
      case 6:
        if (is_narrow) {
          Rarely(ours, input);
          break;
        }
        [[fallthrough]];
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

// Records of both sides of one connection: what each makes the other opens, in order, and nothing
// else, through as many keys as there are.
class RecordPair {
 public:
  explicit RecordPair(FuzzInput input) : input_(input) {}

  void Run() {
    TlsTrafficSecrets secrets;
    const uint8_t how = input_.U8();
    Note(&secrets, how);
    const uint16_t suite = static_cast<uint16_t>(0x1301 + (how & 1) + (how >= 254 ? 2 : 0));
    const uint64_t records_per_key = 2 + how / 2 % 8;
    for (const TlsRole role : {TlsRole::kClient, TlsRole::kServer}) {
      auto made = TlsRecords::Create(suite, role, secrets, records_per_key);
      if (made == nullptr) return;
      sides_[role == TlsRole::kServer] = std::move(made);
    }
    for (int i = 0; i < kMostEvents && input_.more(); ++i) {
      if (!Event(input_.U8())) return;
    }
  }

 private:
  // Lines as OpenSSL's key log has them, or nearly.
  void Note(TlsTrafficSecrets* secrets, uint8_t how) {
    const size_t bytes = (how & 1) != 0 ? 48 : 32;
    for (const char* const name : {"CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"}) {
      const uint8_t odd = input_.U8();
      std::string digits(2 * bytes, "0aF9"[odd % 4]);
      if (odd == 255) digits[input_.U8() % digits.size()] = 'x';
      if (odd == 254) digits.resize(input_.U8());
      secrets->Note("EXPORTER_SECRET 00 11");
      secrets->Note(std::string(name) + " 00 " + digits);
    }
  }
  bool Event(uint8_t event) {
    TlsRecords& from = *sides_[event & 1];
    TlsRecords& to = *sides_[1 - (event & 1)];
    switch (event / 2 % 8) {
      case 0:
        return Deliver(to, Alert(from), false);
      case 1:
        return Deliver(to, KeyUpdate(from, input_.Bit()), false);
      case 2: {
        const std::string record = Content(from, TlsRecords::Kind::kHandshake);
        // A key update that the sender's side knows nothing of: what it seals next opens nowhere.
        const bool is_key_update = said_.starts_with('\x18');
        return Deliver(to, record, false) && !is_key_update;
      }
      case 3: {  // once more, or changed
        std::string record = Content(from, TlsRecords::Kind::kData);
        record[input_.U16() % record.size()] ^= static_cast<char>(1 + input_.Below(255));
        return Deliver(to, record, true);
      }
      default:
        return Deliver(to, Content(from, TlsRecords::Kind::kData), false);
    }
  }
  std::string Alert(TlsRecords& from) {
    constexpr TlsRecords::Alert kAlerts[] = {
        TlsRecords::Alert::kUserCanceled, TlsRecords::Alert::kUserCanceled,
        TlsRecords::Alert::kDecodeError, TlsRecords::Alert::kCloseNotify};
    std::string record(TlsRecords::kAlertBytes + TlsRecords::kKeyUpdateBytes, '\0');
    record.resize(from.SealAlert(kAlerts[input_.Below(4)], Bytes(record)));
    return record;
  }
  static std::byte* Bytes(std::string& text) { return reinterpret_cast<std::byte*>(text.data()); }
  static std::string KeyUpdate(TlsRecords& from, bool requests) {
    std::string record(TlsRecords::kKeyUpdateBytes, '\0');
    record.resize(from.SealKeyUpdate(requests, Bytes(record)));
    return record;
  }
  // In up to three pieces, of which some are large enough not to be copied.
  std::string Content(TlsRecords& from, TlsRecords::Kind kind) {
    std::string content;
    if (kind == TlsRecords::Kind::kData) {
      const size_t bytes = input_.U8();
      content.assign(input_.Bit() ? 64 * bytes : bytes, 'd');
    } else {
      content = input_.Text(input_.Below(16));
    }
    const size_t cuts[] = {input_.U16() % (content.size() + 1), input_.U8() % (content.size() + 1)};
    const size_t first = std::min(cuts[0], cuts[1]), second = std::max(cuts[0], cuts[1]);
    const iovec pieces[] = {{content.data(), first},
                            {content.data() + first, second - first},
                            {content.data() + second, content.size() - second}};
    IovecCursor cursor(pieces, 3);
    std::string record(content.size() + TlsRecords::kAddedBytes + TlsRecords::kKeyUpdateBytes,
                       '\0');
    said_ = content;
    record.resize(from.Seal(kind, &cursor, content.size(), Bytes(record)));
    return record;
  }
  // One record, or two where the key was used up. False: the connection would end.
  bool Deliver(TlsRecords& to, std::string records, bool is_changed) {
    while (!records.empty()) {
      const MutableByteSpan input(Bytes(records), records.size());
      size_t bytes = 0;
      if (!to.Measure(input, &bytes)) return WEFT_CHECK(is_changed), false;
      if (bytes == 0 || bytes > input.size()) return WEFT_CHECK(is_changed), false;
      const MutableByteSpan record = input.first(bytes);
      std::string elsewhere(TlsRecords::SealedBytes(bytes), '\0');
      std::byte* const place =
          input_.Bit() ? record.data() + TlsRecords::kHeaderBytes : Bytes(elsewhere);
      const TlsRecords::Opened opened = to.Open(record, place);
      if (opened.kind == TlsRecords::Kind::kWrong) {
        WEFT_CHECK(is_changed && to.fault().what != nullptr);
        return false;
      }
      const ByteSpan content(place, opened.bytes);
      if (opened.kind == TlsRecords::Kind::kData) {
        WEFT_CHECK(!is_changed && AsStringView(content) == said_);
      } else if (!Hear(to, to.Take(opened.kind, content))) {
        return false;
      }
      records.erase(0, bytes);
    }
    return true;
  }
  bool Hear(TlsRecords& to, TlsRecords::Message message) {
    TlsRecords& other = &to == sides_[0].get() ? *sides_[1] : *sides_[0];
    if (message == TlsRecords::Message::kWrong)
      return WEFT_CHECK(to.fault().what != nullptr), false;
    if (message == TlsRecords::Message::kFatalAlert) return WEFT_CHECK(to.fatal_alert() > 0), false;
    if (message == TlsRecords::Message::kKeyUpdateRequested) {
      return Deliver(other, KeyUpdate(to, /*requests=*/false), false);
    }
    if (to.IsTimeToAsk()) return Deliver(other, KeyUpdate(to, /*requests=*/true), false);
    return message == TlsRecords::Message::kIgnored;
  }

  FuzzInput input_;
  std::unique_ptr<TlsRecords> sides_[2];  // [server]
  std::string said_;
};

void Run(Host* host, FuzzInput input) {
  const uint8_t how = input.U8();
  const bool is_narrow = (how & 16) != 0;
  if ((how & 64) != 0) return RecordPair(input).Run();
  if ((how & 12) == 12) return RunWithTheKey(host, (how & 1) != 0, is_narrow, input);
  const bool server = (how & 1) != 0;
  const bool psk = (how & 2) != 0;
  const bool is_odd = (how & 32) != 0;
  TlsCredentials* mine = host->credentials[psk][server].get();
  TlsCredentials* peers = host->credentials[psk][!server].get();
  if (is_odd) {  // one of both is not who the other wants
    const uint8_t which = input.Below(2 * Host::kOdd + 1);
    if (which == 2 * Host::kOdd) {
      peers = host->credentials[!psk][!server].get();
    } else {
      (which % 2 == 0 ? mine : peers) =
          host->odd[which / 2][which % 2 == 0 ? server : !server].get();
      if (which / 2 == Host::kNoCertificate) {
        mine = host->odd[which / 2][server].get();
        peers = host->odd[which / 2][!server].get();
      }
    }
  }
  End ours(is_narrow), theirs;
  WEFT_CHECK(
      ours.stream->Start(mine, &host->ours, 0, server ? std::string_view() : "localhost").ok());
  WEFT_CHECK(
      theirs.stream->Start(peers, &host->theirs, 0, server ? "localhost" : std::string_view())
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
        if (is_narrow) Rarely(ours, input);
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
