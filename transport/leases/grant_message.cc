#include "transport/leases/grant_message.h"

#include <algorithm>
#include <type_traits>

#include "core/check.h"

namespace weft {
namespace {

constexpr size_t kHeaderBytes = 8;

// The first byte. On the wire: never reuse one.
enum class Kind : uint8_t {
  kResolve = 1,
  kGranted = 2,
  kRefused = 3,
  kRenew = 4,
  kRenewed = 5,
  kReturn = 6,
  kEnded = 7,
  kDerive = 8,
  kDerived = 9,
};

bool IsLeaseAsked(uint64_t ns) { return ns >= kMinLeaseNs && ns <= kMaxLeaseNs; }
bool IsLeaseGiven(uint64_t ns) { return ns >= 1 && ns <= kMaxLeaseNs; }

// Both directions of one message are one list of its fields: Visit() below. A Writer appends each,
// a Reader takes each. The header is: kind, `small` (rights or a status code), 6 bytes of 0.
class Writer {
 public:
  Writer(Kind kind, MutableByteSpan to) : to_(to) {
    std::fill_n(to_.begin(), kHeaderBytes, std::byte{0});
    to_[0] = static_cast<std::byte>(kind);
  }
  void Small(uint8_t value) { to_[1] = static_cast<std::byte>(value); }
  void Code(absl::StatusCode code) { Small(static_cast<uint8_t>(code)); }
  void U64(uint64_t value) {
    StoreLe64(&to_[size_], value);
    size_ += sizeof(value);
  }
  void Handle(const RegionHandle& handle) { Bytes(handle.bytes()); }
  void Rest(const std::string& text) { Bytes(AsBytes(text)); }
  size_t size() const { return size_; }

 private:
  void Bytes(ByteSpan bytes) {
    WEFT_CHECK(bytes.size() <= to_.size() - size_);  // Ours: ExportTable bounds the only text
    std::copy(bytes.begin(), bytes.end(), to_.begin() + static_cast<ptrdiff_t>(size_));
    size_ += bytes.size();
  }

  const MutableByteSpan to_;
  size_t size_ = kHeaderBytes;
};

class Reader {
 public:
  // REQUIRES: kHeaderBytes at least.
  explicit Reader(ByteSpan from) : small_(static_cast<uint8_t>(from[1])), rest_(from) {
    ok_ = rest_.Skip(kHeaderBytes) &&
          std::all_of(from.begin() + 2, from.begin() + kHeaderBytes,
                      [](std::byte byte) { return byte == std::byte{0}; });
  }
  void Small(uint8_t& value) {
    value = small_;
    small_ = 0;
  }
  void Code(absl::StatusCode& code) {
    code = static_cast<absl::StatusCode>(small_);
    small_ = 0;
  }
  void U64(uint64_t& value) { ok_ = ok_ && rest_.ReadLe64(&value); }
  void Handle(RegionHandle& handle) {
    ByteSpan bytes;
    ok_ = ok_ && rest_.ReadBytes(RegionHandle::kBytes, &bytes) &&
          RegionHandle::FromBytes(AsStringView(bytes), &handle);
  }
  void Rest(std::string& text) {
    ok_ = ok_ && rest_.remaining() <= kMaxLayoutNameBytes;
    if (ok_) text = AsStringView(rest_.rest());
    if (ok_) ok_ = rest_.Skip(rest_.remaining());
  }
  // Everything was there and nothing else.
  bool complete() const { return ok_ && small_ == 0 && rest_.remaining() == 0; }

 private:
  uint8_t small_;
  ByteReader rest_;
  bool ok_;
};

// The fields of each, in their order on the wire. `M` is const for a Writer.
template <class V, class M>
void Visit(V& v, M& m) {
  using Message = std::remove_const_t<M>;
  if constexpr (std::is_same_v<Message, GrantResolve>) {
    v.U64(m.ask), v.U64(m.lease_ns), v.U64(m.layout), v.Handle(m.handle);
  } else if constexpr (std::is_same_v<Message, GrantGranted>) {
    v.Small(m.rights), v.U64(m.ask), v.U64(m.lease), v.U64(m.lease_ns);
    v.U64(m.remote.key), v.U64(m.remote.offset), v.U64(m.remote.length);
  } else if constexpr (std::is_same_v<Message, GrantRefused>) {
    v.Code(m.code), v.U64(m.ask), v.U64(m.layout), v.Rest(m.layout_name);
  } else if constexpr (std::is_same_v<Message, GrantRenew> ||
                       std::is_same_v<Message, GrantRenewed>) {
    v.U64(m.lease), v.U64(m.lease_ns);
  } else if constexpr (std::is_same_v<Message, GrantReturn>) {
    v.U64(m.lease);
  } else if constexpr (std::is_same_v<Message, GrantEnded>) {
    v.Code(m.code), v.U64(m.lease), v.U64(m.grace_ns);
  } else if constexpr (std::is_same_v<Message, GrantDerive>) {
    v.Small(m.rights), v.U64(m.ask), v.U64(m.offset), v.U64(m.length), v.U64(m.lifetime_ns);
    v.Handle(m.handle);
  } else {
    static_assert(std::is_same_v<Message, GrantDerived>);
    v.U64(m.ask), v.Handle(m.handle);
  }
}

// Whether the fields are in their ranges.
bool Check(const GrantResolve& m) { return IsLeaseAsked(m.lease_ns); }
bool Check(const GrantGranted& m) {
  const RemoteSpan& span = m.remote;
  return IsLeaseGiven(m.lease_ns) && AreRights(m.rights) && span.length != 0 &&
         span.length <= ~uint64_t{0} - span.offset;
}
bool Check(const GrantRefused& m) {
  if (m.code == absl::StatusCode::kFailedPrecondition) return true;
  return (m.code == absl::StatusCode::kPermissionDenied ||
          m.code == absl::StatusCode::kResourceExhausted) &&
         m.layout == 0 && m.layout_name.empty();
}
bool Check(const GrantRenew& m) { return IsLeaseAsked(m.lease_ns); }
bool Check(const GrantRenewed& m) { return IsLeaseGiven(m.lease_ns); }
bool Check(const GrantReturn&) { return true; }
bool Check(const GrantEnded& m) {
  return m.grace_ns <= kMaxLeaseNs &&
         (m.code == absl::StatusCode::kAborted || m.code == absl::StatusCode::kDeadlineExceeded);
}
bool Check(const GrantDerive& m) { return AreRights(m.rights) && m.length != 0; }
bool Check(const GrantDerived&) { return true; }

template <class M>
bool Decode(ByteSpan bytes, GrantMessage* message) {
  M decoded;
  Reader reader(bytes);
  Visit(reader, decoded);
  if (!reader.complete() || !Check(decoded)) return false;
  *message = std::move(decoded);
  return true;
}

static_assert(std::variant_size_v<GrantMessage> == static_cast<size_t>(Kind::kDerived));

}  // namespace

GrantBytes EncodeGrant(const GrantMessage& message) {
  GrantBytes grant;
  // The variant lists them in the order of their kinds.
  Writer writer(static_cast<Kind>(message.index() + 1), grant.bytes_);
  std::visit([&writer](const auto& fields) { Visit(writer, fields); }, message);
  grant.size_ = writer.size();
  return grant;
}

bool DecodeGrant(ByteSpan bytes, GrantMessage* message) {
  if (bytes.size() < kHeaderBytes || bytes.size() > kMaxGrantBytes) return false;
  switch (static_cast<Kind>(bytes[0])) {
    case Kind::kResolve:
      return Decode<GrantResolve>(bytes, message);
    case Kind::kGranted:
      return Decode<GrantGranted>(bytes, message);
    case Kind::kRefused:
      return Decode<GrantRefused>(bytes, message);
    case Kind::kRenew:
      return Decode<GrantRenew>(bytes, message);
    case Kind::kRenewed:
      return Decode<GrantRenewed>(bytes, message);
    case Kind::kReturn:
      return Decode<GrantReturn>(bytes, message);
    case Kind::kEnded:
      return Decode<GrantEnded>(bytes, message);
    case Kind::kDerive:
      return Decode<GrantDerive>(bytes, message);
    case Kind::kDerived:
      return Decode<GrantDerived>(bytes, message);
  }
  return false;
}

}  // namespace weft
