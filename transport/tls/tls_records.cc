#include "transport/tls/tls_records.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "core/check.h"
#include "core/strings.h"

namespace weft {
namespace {

// Pieces of fewer bytes are copied, and encrypted with what is beside them: a call of the cipher
// takes 50 ns, to copy so many half of it.
constexpr size_t kCopiedBytes = size_t{1} << 10;

// Of every record that is sealed (RFC 8446, 5.2): its type in the clear, and TLS 1.2's number.
constexpr std::byte kOuterType{23};
constexpr std::byte kVersion{3};

// Kinds of handshake messages (4), and the two requests of a key update (4.6.3).
constexpr std::byte kNewSessionTicket{4};
constexpr std::byte kKeyUpdate{24};
constexpr std::byte kNotRequested{0};
constexpr std::byte kRequested{1};
constexpr size_t kMessageHeadBytes = 4;

constexpr std::string_view kClientLine = "CLIENT_TRAFFIC_SECRET_0 ";
constexpr std::string_view kServerLine = "SERVER_TRAFFIC_SECRET_0 ";

// HKDF-Expand-Label (RFC 8446, 7.1) without a context, of one hash or less: HKDF-Expand (RFC 5869)
// is one HMAC then.
void ExpandLabel(const EVP_MD* hash, ByteSpan secret, std::string_view label, MutableByteSpan to) {
  std::string info(1, '\0');  // a length of two bytes, big-endian
  info += static_cast<char>(to.size());
  info += static_cast<char>(6 + label.size());
  info += "tls13 ";
  info += label;
  info += '\0';    // of the context
  info += '\x01';  // the first block of HKDF
  SecretBytes<EVP_MAX_MD_SIZE> block;
  unsigned int bytes = 0;
  const unsigned char* const done =
      HMAC(hash, secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(info.data()), info.size(),
           reinterpret_cast<unsigned char*>(block.data()), &bytes);
  WEFT_CHECK(done != nullptr && bytes >= to.size());  // System: memory for a hash
  std::memcpy(to.data(), block.data(), to.size());
}

// A digit of a hexadecimal number; -1: none.
int DigitOf(char text) {
  if (text >= '0' && text <= '9') return text - '0';
  if (text >= 'a' && text <= 'f') return text - 'a' + 10;
  if (text >= 'A' && text <= 'F') return text - 'A' + 10;
  return -1;
}

}  // namespace

// --- secrets -------------------------------------------------------------------------------------

void TlsTrafficSecrets::Note(std::string_view line) {
  const bool of_client = line.starts_with(kClientLine);
  if (!of_client && !line.starts_with(kServerLine)) return;
  const std::string_view digits = line.substr(line.rfind(' ') + 1);
  Slot& slot = of_client ? client_ : server_;
  slot.size = 0;
  if (digits.size() % 2 != 0 || digits.size() > 2 * kMostBytes) return;
  for (size_t i = 0; i < digits.size(); i += 2) {
    const int high = DigitOf(digits[i]);
    const int low = DigitOf(digits[i + 1]);
    if (high < 0 || low < 0) return;
    slot.bytes[i / 2] = static_cast<std::byte>(high << 4 | low);
  }
  slot.size = digits.size() / 2;
}

// --- keys ----------------------------------------------------------------------------------------

std::unique_ptr<TlsRecords> TlsRecords::Create(uint16_t suite, TlsRole role,
                                               const TlsTrafficSecrets& secrets,
                                               uint64_t records_per_key) {
  constexpr uint16_t kAes128GcmSha256 = 0x1301;
  constexpr uint16_t kAes256GcmSha384 = 0x1302;
  if (suite != kAes128GcmSha256 && suite != kAes256GcmSha384) return nullptr;
  const EVP_MD* const hash = suite == kAes128GcmSha256 ? EVP_sha256() : EVP_sha384();
  const bool is_client = role == TlsRole::kClient;
  std::unique_ptr<TlsRecords> made(
      new TlsRecords(hash, suite == kAes128GcmSha256 ? 16 : 32, is_client, records_per_key));
  const TlsRole peer = is_client ? TlsRole::kServer : TlsRole::kClient;
  if (secrets.of(role).size() != made->hash_bytes_ ||
      secrets.of(peer).size() != made->hash_bytes_) {
    return nullptr;
  }
  made->Begin(&made->out_, secrets.of(role));
  made->Begin(&made->in_, secrets.of(peer));
  return made;
}

TlsRecords::TlsRecords(const evp_md_st* hash, size_t key_bytes, bool is_client,
                       uint64_t records_per_key)
    : hash_(hash),
      hash_bytes_(static_cast<size_t>(EVP_MD_get_size(hash))),
      key_bytes_(key_bytes),
      is_client_(is_client),
      records_per_key_(records_per_key),
      out_(RecordCipher::Role::kEncrypts),
      in_(RecordCipher::Role::kDecrypts) {
  WEFT_CHECK(records_per_key >= 2);  // Ours: a key is for a record, and for its own update
}

void TlsRecords::Begin(Direction* direction, ByteSpan secret) {
  std::copy(secret.begin(), secret.end(), direction->secret.begin());
  UseSecret(direction);
}

TlsRecordKey TlsRecords::KeyOf(const Direction& direction) const {
  TlsRecordKey made;
  made.bytes = key_bytes_;
  ExpandLabel(hash_, SecretOf(direction), "key", MutableByteSpan(made.key).first(key_bytes_));
  ExpandLabel(hash_, SecretOf(direction), "iv", made.iv);
  made.number = direction.number;
  return made;
}

void TlsRecords::UseSecret(Direction* direction) {
  direction->number = 0;
  const TlsRecordKey made = KeyOf(*direction);
  direction->cipher.UseKey(made.used(), made.iv);
}

void TlsRecords::UseNextSecret(Direction* direction) {
  SecretBytes<kMostHashBytes> next;
  const MutableByteSpan used = MutableByteSpan(next).first(hash_bytes_);
  ExpandLabel(hash_, SecretOf(*direction), "traffic upd", used);
  std::copy(used.begin(), used.end(), direction->secret.begin());
  UseSecret(direction);
}

// --- out -----------------------------------------------------------------------------------------

size_t TlsRecords::Seal(Kind kind, IovecCursor* from, size_t bytes, std::byte* to) {
  // The last number of a key is its update's.
  if (out_.number + 1 < records_per_key_) [[likely]]
    return MakeRecord(kind, from, bytes, to);
  const size_t update = SealKeyUpdate(/*requests_update=*/false, to);
  return update + MakeRecord(kind, from, bytes, to + update);
}

size_t TlsRecords::MakeRecord(Kind kind, IovecCursor* from, size_t bytes, std::byte* to) {
  WEFT_DCHECK(bytes <= kMostPlainBytes && out_.number < records_per_key_);  // Ours: Seal()'s terms
  const size_t sealed = bytes + 1 + RecordCipher::kTagBytes;
  to[0] = kOuterType;
  to[1] = to[2] = kVersion;
  to[3] = static_cast<std::byte>(sealed >> 8);
  to[4] = static_cast<std::byte>(sealed);
  RecordCipher& cipher = out_.cipher;
  cipher.Begin(out_.number++, ByteSpan(to, kHeaderBytes));
  std::byte* at = to + kHeaderBytes;
  std::byte* copied = at;  // from here to `at`: not encrypted yet
  const auto encrypt_copied = [&] { cipher.Add(ByteSpan(copied, at), copied); };
  for (size_t left = bytes; left > 0;) {
    const MutableByteSpan piece = from->piece();
    const size_t taken = std::min(piece.size(), left);
    if (taken < kCopiedBytes) {
      std::memcpy(at, piece.data(), taken);
    } else {
      encrypt_copied();
      cipher.Add(piece.first(taken), at);
      copied = at + taken;
    }
    at += taken;
    left -= taken;
    from->Advance(taken);
  }
  *at++ = static_cast<std::byte>(kind);
  encrypt_copied();
  cipher.MakeTag(at);
  return kHeaderBytes + sealed;
}

std::array<std::byte, TlsRecords::kAlertMessageBytes> TlsRecords::AlertMessage(Alert alert) {
  return {std::byte{alert == Alert::kCloseNotify ? uint8_t{1} : uint8_t{2}},
          static_cast<std::byte>(alert)};
}

std::array<std::byte, TlsRecords::kKeyUpdateMessageBytes> TlsRecords::KeyUpdateMessage(
    bool requests_update) {
  return {kKeyUpdate, {}, {}, std::byte{1}, requests_update ? kRequested : kNotRequested};
}

size_t TlsRecords::SealAlert(Alert alert, std::byte* to) {
  auto content = AlertMessage(alert);
  const iovec piece{content.data(), content.size()};
  IovecCursor from(&piece, 1);
  return Seal(Kind::kAlert, &from, content.size(), to);
}

size_t TlsRecords::SealKeyUpdate(bool requests_update, std::byte* to) {
  asked_ = asked_ || requests_update;
  auto content = KeyUpdateMessage(requests_update);
  const iovec piece{content.data(), content.size()};
  IovecCursor from(&piece, 1);
  const size_t bytes = MakeRecord(Kind::kHandshake, &from, content.size(), to);
  UseNextSecret(&out_);
  return bytes;
}

// --- in ------------------------------------------------------------------------------------------

TlsRecords::Message TlsRecords::Refuse(Alert alert, const char* what) {
  fault_ = {alert, what};
  return Message::kWrong;
}

bool TlsRecords::Measure(ByteSpan input, size_t* bytes) {
  *bytes = 0;
  if (input.size() < kHeaderBytes) return true;
  if (input[0] != kOuterType || input[1] != kVersion || input[2] != kVersion) {
    Refuse(Alert::kUnexpectedMessage, "it is not sealed, or no record");
    return false;
  }
  const size_t sealed = std::to_integer<size_t>(input[3]) << 8 | std::to_integer<size_t>(input[4]);
  if (sealed > kMostBytes - kHeaderBytes) {
    Refuse(Alert::kRecordOverflow, "it is longer than 2^14 bytes of content");
    return false;
  }
  if (sealed < 1 + RecordCipher::kTagBytes) {
    Refuse(Alert::kDecodeError, "it is too short to hold anything");
    return false;
  }
  *bytes = kHeaderBytes + sealed;
  return true;
}

TlsRecords::Opened TlsRecords::Open(ByteSpan record, std::byte* to) {
  size_t left = SealedBytes(record.size());
  // A number comes again after 2^64 records: long before it, this side has asked for another key.
  if (in_.number == ~uint64_t{0}) {
    Refuse(Alert::kUnexpectedMessage, "the peer's key is used up");
    return {};
  }
  in_.cipher.Begin(in_.number, record.first(kHeaderBytes));
  in_.cipher.Add(record.subspan(kHeaderBytes, left), to);
  if (!in_.cipher.CheckTag(record.last(RecordCipher::kTagBytes))) {
    Refuse(Alert::kBadRecordMac, "it does not open: it was changed, left out, or is another one's");
    return {};
  }
  ++in_.number;
  while (left > 0 && to[left - 1] == std::byte{0}) --left;  // padding
  if (left == 0) {
    Refuse(Alert::kUnexpectedMessage, "it has no content type");
    return {};
  }
  const Kind kind = static_cast<Kind>(to[--left]);
  if (kind == Kind::kData || kind == Kind::kAlert || kind == Kind::kHandshake) return {kind, left};
  Refuse(Alert::kUnexpectedMessage, "its content type is unknown");
  return {};
}

TlsRecords::Message TlsRecords::Take(Kind kind, ByteSpan content) {
  WEFT_DCHECK(kind == Kind::kAlert || kind == Kind::kHandshake);  // Ours: data is the caller's
  return kind == Kind::kAlert ? TakeAlert(content) : TakeHandshake(content);
}

TlsRecords::Message TlsRecords::TakeAlert(ByteSpan content) {
  if (content.size() != 2) return Refuse(Alert::kDecodeError, "an alert has two bytes");
  // The level says nothing in TLS 1.3.
  const auto alert = static_cast<Alert>(content[1]);
  if (alert == Alert::kCloseNotify) return Message::kEnd;
  if (alert == Alert::kUserCanceled) return Message::kIgnored;  // and an end comes behind it
  fatal_alert_ = static_cast<uint8_t>(alert);
  return Message::kFatalAlert;
}

TlsRecords::Message TlsRecords::TakeHandshake(ByteSpan content) {
  if (content.empty()) return Refuse(Alert::kUnexpectedMessage, "a handshake record is empty");
  while (!content.empty()) {
    if (content.size() < kMessageHeadBytes) break;
    const size_t bytes = std::to_integer<size_t>(content[1]) << 16 |
                         std::to_integer<size_t>(content[2]) << 8 |
                         std::to_integer<size_t>(content[3]);
    const std::byte kind = content[0];
    content = content.subspan(kMessageHeadBytes);
    if (kind != kKeyUpdate && !(kind == kNewSessionTicket && is_client_)) {
      return Refuse(Alert::kUnexpectedMessage, "a message of the handshake has come behind it");
    }
    if (bytes > content.size()) break;
    if (kind == kNewSessionTicket) {
      content = content.subspan(bytes);
      if (content.empty()) return Message::kIgnored;
      continue;
    }
    if (bytes != 1) return Refuse(Alert::kDecodeError, "a key update has one byte");
    if (content.size() != 1) {
      return Refuse(Alert::kUnexpectedMessage, "a key update does not end its record");
    }
    if (content[0] != kNotRequested && content[0] != kRequested) {
      return Refuse(Alert::kIllegalParameter, "a key update asks for something unknown");
    }
    UseNextSecret(&in_);
    ++peer_updates_;
    asked_ = false;
    return content[0] == kRequested ? Message::kKeyUpdateRequested : Message::kIgnored;
  }
  return Refuse(Alert::kUnexpectedMessage, "a message of TLS's own is cut over two records");
}

bool TlsRecords::IsTimeToAsk() const { return in_.number >= records_per_key_ && !asked_; }

}  // namespace weft
