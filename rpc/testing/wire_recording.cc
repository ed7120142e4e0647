#include "rpc/testing/wire_recording.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <utility>

#include "core/bytes.h"
#include "core/strings.h"
#include "rpc/testing/recording_text.h"

namespace weft::test {
namespace {

// docs/wire_format.md, section 1.
constexpr size_t kControlHeader = 8;
constexpr size_t kPreamble = 8;
constexpr size_t kJoin = 24;
constexpr size_t kWelcome = 8;
constexpr std::string_view kMagic = "\x89WEF";  // how all three begin; no frame does
constexpr uint16_t kClientHello = 1;
constexpr uint16_t kServerHello = 2;
constexpr uint16_t kPathTry = 4;
constexpr uint16_t kPathReady = 5;
constexpr uint16_t kBye = 9;
constexpr uint16_t kGrant = 17;
constexpr size_t kHandle = 56;
// Section 2: of the link, and of a batch.
constexpr size_t kLinkHeader = 16;
constexpr uint32_t kBatch = 1;
constexpr uint32_t kRead = 2;
constexpr uint32_t kWrite = 4;
constexpr size_t kBatchHeader = 16;
constexpr size_t kFrameHeader = 8;
constexpr uint32_t kMessage = 1;
constexpr uint32_t kLargeOffer = 2;
// Section 3: kinds of calls' frames.
constexpr size_t kCallHeader = 16;
constexpr uint16_t kRequest = 1;
constexpr uint16_t kReply = 2;
constexpr uint16_t kOpen = 5;
constexpr uint16_t kOneWay = 12;
constexpr uint16_t kBegin = 13;
constexpr size_t kWindow = 32;

const std::byte* At(std::string_view bytes, size_t at) {
  return reinterpret_cast<const std::byte*>(bytes.data()) + at;
}
uint16_t Load16(std::string_view bytes, size_t at) { return LoadLe16(At(bytes, at)); }
uint32_t Load32(std::string_view bytes, size_t at) { return LoadLe32(At(bytes, at)); }
uint64_t Load64(std::string_view bytes, size_t at) { return LoadLe64(At(bytes, at)); }
void Store16(std::string* bytes, size_t at, uint16_t value) {
  StoreLe16(reinterpret_cast<std::byte*>(bytes->data()) + at, value);
}
void Store32(std::string* bytes, size_t at, uint32_t value) {
  StoreLe32(reinterpret_cast<std::byte*>(bytes->data()) + at, value);
}
void Store64(std::string* bytes, size_t at, uint64_t value) {
  StoreLe64(reinterpret_cast<std::byte*>(bytes->data()) + at, value);
}
size_t Padded(size_t bytes) { return (bytes + 7) & ~size_t{7}; }
bool IsGreeting(std::string_view bytes) { return bytes.substr(0, kMagic.size()) == kMagic; }

// --- protobuf ------------------------------------------------------------------------------------

// A field as it is encoded: a number, or bytes.
struct Encoded {
  uint32_t number = 0;
  uint64_t value = 0;
  std::string bytes;
};

std::optional<uint64_t> TakeVarint(std::string_view* from) {
  uint64_t value = 0;
  for (uint32_t shift = 0; shift < 64 && !from->empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(from->front());
    from->remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::vector<Encoded> FieldsOf(std::string_view message) {
  std::vector<Encoded> fields;
  while (!message.empty()) {
    const std::optional<uint64_t> tag = TakeVarint(&message);
    Encoded field;
    field.number = static_cast<uint32_t>(tag.value_or(0) >> 3);
    const uint64_t type = tag.value_or(7) & 7;
    size_t bytes = type == 1 ? 8 : type == 5 ? 4 : 0;
    if (type == 0 || type == 2) {
      const std::optional<uint64_t> number = TakeVarint(&message);
      if (!number.has_value()) break;
      (type == 0 ? field.value : bytes) = *number;
    } else if (bytes == 0) {
      break;
    }
    if (bytes > message.size()) break;
    field.bytes = message.substr(0, bytes);
    if (type == 5) field.value = Load32(field.bytes, 0);
    if (type == 1) field.value = Load64(field.bytes, 0);
    message.remove_prefix(bytes);
    fields.push_back(std::move(field));
  }
  EXPECT_TRUE(message.empty()) << "this is no protobuf message";
  return fields;
}

std::vector<Encoded> All(const std::vector<Encoded>& fields, uint32_t number) {
  std::vector<Encoded> found;
  for (const Encoded& field : fields) {
    if (field.number == number) found.push_back(field);
  }
  return found;
}
// Of a field that is missing, the default.
Encoded One(const std::vector<Encoded>& fields, uint32_t number) {
  std::vector<Encoded> found = All(fields, number);
  return found.empty() ? Encoded() : found.front();
}
std::vector<std::string> Texts(const std::vector<Encoded>& fields, uint32_t number) {
  std::vector<std::string> texts;
  for (const Encoded& field : All(fields, number)) texts.push_back(field.bytes);
  std::sort(texts.begin(), texts.end());
  return texts;
}

// The application's hello, of a client or a server (hello.proto of rpc/wire).
void ExpectNothingMissing(const std::string& recorded, const std::string& live) {
  const std::vector<Encoded> before = FieldsOf(recorded);
  const std::vector<Encoded> now = FieldsOf(live);
  for (const Encoded& field : before) {
    EXPECT_FALSE(All(now, field.number).empty()) << "the hello lacks the field " << field.number;
  }
  EXPECT_EQ(One(now, 1).value, One(before, 1).value) << "of the call protocol";
  const std::string services = One(before, 5).bytes;
  if (!services.empty()) {
    EXPECT_EQ(TextOfBytes(One(now, 5).bytes), TextOfBytes(services));
  }
}

// --- sockets -------------------------------------------------------------------------------------

sockaddr_in AddressOf(const std::string& text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  const size_t colon = text.rfind(':');
  EXPECT_EQ(::inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr), 1) << text;
  address.sin_port = htons(static_cast<uint16_t>(std::stoul(text.substr(colon + 1))));
  return address;
}

Descriptor NewSocket() { return Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

// On this host who listens has no say in it: it does not wait.
Descriptor ConnectTo(const std::string& server) {
  Descriptor socket = NewSocket();
  const sockaddr_in address = AddressOf(server);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
            0)
      << server;
  return socket;
}

Descriptor ListenAnywhere(std::string* address) {
  Descriptor socket = NewSocket();
  sockaddr_in any = AddressOf("127.0.0.1:0");
  socklen_t length = sizeof(any);
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), length), 0);
  EXPECT_EQ(::listen(socket.get(), SOMAXCONN), 0);
  EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&any), &length), 0);
  *address = StrCat("127.0.0.1:", ntohs(any.sin_port));
  return socket;
}

// Those that have said enough to be told apart: `take(socket, is_link)`.
template <class Take>
void AcceptAll(const Descriptor& listening, std::vector<Descriptor>* newcomers, Take take) {
  for (;;) {
    pollfd watch{listening.get(), POLLIN, 0};
    if (::poll(&watch, 1, 0) != 1) break;
    newcomers->emplace_back(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  for (size_t i = 0; i < newcomers->size();) {
    char first[kPreamble];
    const int socket = (*newcomers)[i].get();
    if (::recv(socket, first, sizeof(first), MSG_PEEK | MSG_DONTWAIT) != sizeof(first)) {
      ++i;
      continue;
    }
    Descriptor taken = std::move((*newcomers)[i]);
    newcomers->erase(newcomers->begin() + static_cast<std::ptrdiff_t>(i));
    take(std::move(taken), first[4] == 'J');
  }
}

// What has come; `is_over`: and no more will.
std::string ReceiveAll(const Descriptor& from, bool* is_over) {
  std::string received;
  char bytes[16 << 10];
  for (;;) {
    const ssize_t count = ::recv(from.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count <= 0) {
      *is_over = count == 0;
      return received;
    }
    received.append(bytes, static_cast<size_t>(count));
  }
}

// As much as there is room for; what is left stays.
void SendSome(const Descriptor& to, std::string* bytes) {
  while (!bytes->empty()) {
    const ssize_t sent =
        ::send(to.get(), bytes->data(), bytes->size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes->erase(0, static_cast<size_t>(sent));
  }
}

}  // namespace

// --- recordings ----------------------------------------------------------------------------------

std::string LineOf(const WireUnit& unit) {
  return StrCat(unit.on_link ? "link " : "control ", unit.from_client ? "> " : "< ",
                TextOfBytes(unit.bytes), "\n");
}

std::vector<WireUnit> ReadWireRecording(const std::string& path) {
  std::vector<WireUnit> units;
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << "cannot read " << path;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t blank = line.find(' ');
    units.push_back({line.substr(0, blank) == "link", line[blank + 1] == '>',
                     BytesOfText(line.substr(blank + 3))});
  }
  return units;
}

std::optional<WireUnit> WireCutter::Next() {
  size_t bytes = on_link_ ? kLinkHeader : kControlHeader;
  if (is_first_) {
    bytes = !on_link_ ? kPreamble : from_client_ ? kJoin : kWelcome;
  } else if (bytes_.size() >= bytes) {
    bytes += on_link_ ? Padded(Load32(bytes_, 0)) : Load32(bytes_, 0);
  }
  if (bytes_.size() < bytes) return std::nullopt;
  is_first_ = false;
  WireUnit unit{on_link_, from_client_, bytes_.substr(0, bytes)};
  bytes_.erase(0, bytes);
  return unit;
}

// --- the tape ------------------------------------------------------------------------------------

WireTape::WireTape(const std::string& server) : server_(server) {
  listening_ = ListenAnywhere(&address_);
}

void WireTape::Turn() {
  AcceptAll(listening_, &newcomers_, [this](Descriptor client, bool on_link) {
    ways_.push_back({std::move(client),
                     ConnectTo(server_),
                     on_link,
                     {on_link, /*from_client=*/true},
                     {on_link, /*from_client=*/false},
                     {},
                     {}});
  });
  for (Way& way : ways_) {
    Pass(way, /*from_client=*/true);
    Pass(way, /*from_client=*/false);
  }
}

void WireTape::Pass(Way& way, bool from_client) {
  WireCutter& cutter = from_client ? way.from_client : way.from_server;
  std::string& waiting = from_client ? way.to_server : way.to_client;
  const Descriptor& to = from_client ? way.server : way.client;
  bool is_over = false;
  const std::string said = ReceiveAll(from_client ? way.client : way.server, &is_over);
  cutter.Append(said);
  waiting += said;
  while (std::optional<WireUnit> unit = cutter.Next()) {
    if (!is_over_) text_ += LineOf(*unit);
    units_of_client_ += from_client;
    is_over_ |=
        !unit->on_link && from_client && !IsGreeting(unit->bytes) && Load16(unit->bytes, 4) == kBye;
  }
  SendSome(to, &waiting);
  if (is_over && waiting.empty()) ::shutdown(to.get(), SHUT_WR);
  is_over_ |= is_over && !way.on_link && from_client;
}

// --- the player ----------------------------------------------------------------------------------

std::unique_ptr<WirePlayer> WirePlayer::AsClient(std::vector<WireUnit> units,
                                                 const std::string& server) {
  std::unique_ptr<WirePlayer> player(new WirePlayer(std::move(units), /*is_client=*/true, server));
  player->control_.emplace(ConnectTo(server), /*on_link=*/false, /*from_client=*/false);
  return player;
}

std::unique_ptr<WirePlayer> WirePlayer::AsServer(std::vector<WireUnit> units) {
  std::unique_ptr<WirePlayer> player(new WirePlayer(std::move(units), /*is_client=*/false, ""));
  player->listening_ = ListenAnywhere(&player->address_);
  return player;
}

std::string WirePlayer::place() const {
  if (is_done()) return "all of it was played";
  const WireUnit& unit = units_[next_];
  return StrCat("line ", next_ + 1, " of ", units_.size(), ": ",
                LineOf({unit.on_link, unit.from_client, unit.bytes.substr(0, 64)}));
}

void WirePlayer::Turn() {
  if (listening_.valid()) {
    AcceptAll(listening_, &newcomers_, [this](Descriptor client, bool on_link) {
      std::optional<Socket>& place = on_link ? link_ : control_;
      EXPECT_FALSE(place.has_value()) << "it has connected a second time";
      if (!place.has_value()) place.emplace(std::move(client), on_link, /*from_client=*/true);
    });
  }
  if (control_.has_value()) Listen(*control_);
  if (link_.has_value()) Listen(*link_);
  while (!is_done()) {
    const WireUnit& unit = units_[next_];
    if (!(unit.from_client == is_client_ ? Say(unit) : Hear(unit))) break;
    ++next_;
  }
  if (control_.has_value()) SendSome(control_->descriptor, &control_->to_say);
  if (link_.has_value()) SendSome(link_->descriptor, &link_->to_say);
}

void WirePlayer::Listen(Socket& socket) {
  bool is_over = false;
  socket.heard.Append(ReceiveAll(socket.descriptor, &is_over));
  while (std::optional<WireUnit> unit = socket.heard.Next()) {
    if (unit->on_link) {
      TakeLinkUnit(unit->bytes);
    } else if (IsGreeting(unit->bytes) || (Load16(unit->bytes, 6) & 1) == 0) {
      heard_on_control_.push_back(std::move(unit->bytes));
      ++heard_;
    }
  }
}

// Numbers of frames and of batches follow each other, and a batch is for this connection.
void WirePlayer::TakeLinkUnit(const std::string& bytes) {
  if (!IsGreeting(bytes)) {
    EXPECT_EQ(Load32(bytes, 8), heard_frames_++) << "the number of a frame of the link";
    EXPECT_EQ(Load16(bytes, 6), 0u) << "a reserved field";
    if (static_cast<uint8_t>(bytes[4]) == kBatch) {
      ASSERT_GE(bytes.size(), kLinkHeader + kBatchHeader);
      EXPECT_EQ(bytes.substr(kLinkHeader, 8), own_.connection) << "index and token of a batch";
      EXPECT_EQ(Load32(bytes, kLinkHeader + 12), own_.first_sequence + heard_batches_)
          << "the number of a batch";
      ++heard_batches_;
      ++owed_;
      given_ += Load16(bytes, kLinkHeader + 8);
      EXPECT_LE(given_, said_batches_) << "credits that were never taken";
    }
  }
  for (Piece& piece : PiecesOf(bytes)) {
    heard_on_link_.push_back(std::move(piece));
    ++heard_;
  }
}

std::vector<WirePlayer::Piece> WirePlayer::PiecesOf(const std::string& bytes) {
  if (IsGreeting(bytes)) return {{Piece::kGreeting, 0, 0, bytes}};
  const uint32_t length = Load32(bytes, 0);
  const uint32_t kind = static_cast<uint8_t>(bytes[4]);
  const auto flags = static_cast<uint8_t>(bytes[5]);
  const std::string payload = bytes.substr(kLinkHeader, length);
  if (kind != kBatch) return {{kind, flags, Load32(bytes, 12), payload}};
  std::vector<Piece> pieces;
  size_t at = kBatchHeader;
  for (uint16_t left = Load16(payload, 10); left > 0; --left) {
    const size_t frame_bytes = at + kFrameHeader <= payload.size() ? Load32(payload, at) : 0;
    EXPECT_LE(at + kFrameHeader + frame_bytes, payload.size()) << "a frame leaves its batch";
    if (at + kFrameHeader + frame_bytes > payload.size()) break;
    pieces.push_back({Piece::kInBatch + static_cast<uint8_t>(payload[at + 4]),
                      static_cast<uint8_t>(payload[at + 5]), 0,
                      payload.substr(at + kFrameHeader, frame_bytes)});
    at += kFrameHeader + Padded(frame_bytes);
  }
  EXPECT_EQ(at, payload.size()) << "frames do not fill their batch";
  return pieces;
}

// --- what the player says ------------------------------------------------------------------------

bool WirePlayer::Say(const WireUnit& unit) {
  if (unit.on_link && is_client_ && !link_.has_value()) {
    link_.emplace(ConnectTo(address_), /*on_link=*/true, /*from_client=*/false);
  }
  std::optional<Socket>& socket = unit.on_link ? link_ : control_;
  if (!socket.has_value()) return false;  // the client has not connected yet
  socket->to_say += unit.on_link ? SayOnLink(unit.bytes) : SayControl(unit.bytes);
  return true;
}

std::string WirePlayer::SayControl(std::string bytes) {
  if (IsGreeting(bytes)) return bytes;
  const uint16_t type = Load16(bytes, 4);
  if (type == kClientHello || type == kServerHello) {
    const std::vector<Encoded> fields = FieldsOf(std::string_view(bytes).substr(kControlHeader));
    const bool is_client = type == kClientHello;
    own_.connection.resize(8);
    Store32(&own_.connection, 0, static_cast<uint32_t>(One(fields, is_client ? 5 : 4).value));
    Store32(&own_.connection, 4, static_cast<uint32_t>(One(fields, is_client ? 6 : 5).value));
    own_.first_sequence = static_cast<uint32_t>(One(fields, is_client ? 11 : 13).value);
  }
  bytes = Translated(bytes);
  if (type == kGrant) {
    for (const auto& [at, numbers] : GrantNumbers(bytes[kControlHeader])) {
      const size_t place = kControlHeader + at;
      const uint64_t recorded = Load64(bytes, place);
      Store64(&bytes, place, numbers->emplace(recorded, recorded).first->second);
    }
  }
  return bytes;
}

std::string WirePlayer::SayOnLink(std::string bytes) {
  bytes = Translated(bytes);
  if (IsGreeting(bytes)) return bytes;
  const uint32_t kind = static_cast<uint8_t>(bytes[4]);
  if (kind == kBatch) {
    // It gives back all that is owed now, which may be another number than it was.
    if (Load16(bytes, kLinkHeader + 10) == 0) return "";
    bytes.replace(kLinkHeader, 8, other_.connection);
    Store16(&bytes, kLinkHeader + 8, std::exchange(owed_, uint16_t{0}));
    Store32(&bytes, kLinkHeader + 12, other_.first_sequence + said_batches_++);
  } else if (kind != kRead && kind != kWrite) {
    const auto known = operations_.find(Load32(bytes, 12));
    EXPECT_NE(known, operations_.end()) << "of an operation that was not begun";
    if (known != operations_.end()) Store32(&bytes, 12, known->second);
  }
  Store32(&bytes, 8, said_frames_++);
  return bytes;
}

// --- what the player hears -----------------------------------------------------------------------

bool WirePlayer::Hear(const WireUnit& unit) {
  SCOPED_TRACE(place());
  if (!unit.on_link) {
    if (heard_on_control_.empty()) return false;
    HearControl(unit.bytes, heard_on_control_.front());
    heard_on_control_.pop_front();
    return true;
  }
  std::vector<Piece> pieces = PiecesOf(unit.bytes);
  for (; next_piece_ < pieces.size(); ++next_piece_) {
    if (heard_on_link_.empty()) return false;
    HearPiece(std::move(pieces[next_piece_]), std::move(heard_on_link_.front()));
    heard_on_link_.pop_front();
  }
  next_piece_ = 0;
  return true;
}

void WirePlayer::HearControl(const std::string& recorded, const std::string& live) {
  if (IsGreeting(recorded)) {
    EXPECT_EQ(TextOfBytes(live), TextOfBytes(recorded));
    return;
  }
  const uint16_t type = Load16(recorded, 4);
  ASSERT_EQ(Load16(live, 4), type) << "another frame: " << TextOfBytes(live);
  if (type == kBye) return;
  if (type == kGrant) return HearGrant(recorded, live);
  const std::vector<Encoded> before = FieldsOf(std::string_view(recorded).substr(kControlHeader));
  const std::vector<Encoded> now = FieldsOf(std::string_view(live).substr(kControlHeader));
  if (type != kClientHello && type != kServerHello) {
    EXPECT_EQ(One(now, 1).value, One(before, 1).value) << "the candidate";
    if (type != kPathReady) return;
    for (const uint32_t half : {3, 5}) {  // of the link's token
      Learn(One(before, half).bytes, One(now, half).bytes, 0, 8);
    }
    return;
  }
  const bool is_client = type == kClientHello;
  if (is_client) {
    EXPECT_LE(One(now, 1).value, One(before, 1).value) << "the lowest version";
    EXPECT_GE(One(now, 2).value, One(before, 2).value) << "the highest version";
    for (const std::string& feature : Texts(before, 3)) {
      const std::vector<std::string> features = Texts(now, 3);
      EXPECT_EQ(std::count(features.begin(), features.end(), feature), 1) << feature;
    }
  } else {
    EXPECT_EQ(One(now, 1).value, One(before, 1).value) << "the version";
    EXPECT_EQ(Texts(now, 2), Texts(before, 2)) << "features";
    EXPECT_EQ(TextOfBytes(One(now, 7).bytes), TextOfBytes(One(before, 7).bytes))
        << "the first candidate";
  }
  ExpectNothingMissing(One(before, is_client ? 9 : 12).bytes, One(now, is_client ? 9 : 12).bytes);
  other_.connection.resize(8);
  Store32(&other_.connection, 0, static_cast<uint32_t>(One(now, is_client ? 5 : 4).value));
  Store32(&other_.connection, 4, static_cast<uint32_t>(One(now, is_client ? 6 : 5).value));
  other_.first_sequence = static_cast<uint32_t>(One(now, is_client ? 11 : 13).value);
}

// Where in a grant the numbers stand that its sender or its receiver has chosen.
std::vector<std::pair<size_t, std::map<uint64_t, uint64_t>*>> WirePlayer::GrantNumbers(char kind) {
  switch (kind) {
    case 1:  // Resolve
    case 3:  // Refused
    case 8:  // Derive
    case 9:  // Derived
      return {{8, &asks_}};
    case 2:  // Granted
      return {{8, &asks_}, {16, &leases_}};
    default:  // Renew, Renewed, Return, Ended
      return {{8, &leases_}};
  }
}

void WirePlayer::HearGrant(const std::string& recorded, const std::string& live) {
  ASSERT_EQ(live.size(), recorded.size()) << TextOfBytes(live);
  const char kind = recorded[kControlHeader];
  if (kind == 2) Learn(recorded, live, kControlHeader + 32, 8);  // the key
  if (kind == 9) Learn(recorded, live, kControlHeader + 16, kHandle);
  std::string expected = Translated(recorded);
  for (const auto& [at, numbers] : GrantNumbers(kind)) {
    const size_t place = kControlHeader + at;
    const uint64_t now = Load64(live, place);
    Store64(&expected, place, numbers->emplace(Load64(recorded, place), now).first->second);
  }
  EXPECT_EQ(TextOfBytes(live), TextOfBytes(expected));
}

void WirePlayer::HearPiece(Piece recorded, Piece live) {
  ASSERT_EQ(live.kind, recorded.kind) << TextOfBytes(live.payload);
  EXPECT_EQ(live.flags, recorded.flags);
  if (recorded.kind == kRead || recorded.kind == kWrite) {
    operations_[recorded.operation] = live.operation;
  } else {
    EXPECT_EQ(live.operation, recorded.operation);
  }
  if (recorded.kind == Piece::kInBatch + kLargeOffer) {
    Learn(recorded.payload, live.payload, 8, 8);  // the key
  } else if (recorded.kind == Piece::kInBatch + kMessage) {
    ASSERT_GE(live.payload.size(), kCallHeader);
    const uint16_t kind = Load16(recorded.payload, 10) & 0xff;
    if (kind == kBegin) {
      EXPECT_EQ(TextOfBytes(live.payload.substr(0, kCallHeader)),
                TextOfBytes(recorded.payload.substr(0, kCallHeader)));
      ExpectNothingMissing(recorded.payload.substr(kCallHeader), live.payload.substr(kCallHeader));
      return;
    }
    HearMessage(recorded.payload, live.payload);
    if (kind == kRequest || kind == kOneWay || kind == kOpen) {
      Store32(&recorded.payload, 12, 0);  // the time that is left
      Store32(&live.payload, 12, 0);
    }
  }
  EXPECT_EQ(TextOfBytes(live.payload), TextOfBytes(Translated(recorded.payload)));
}

// What a message of calls names: windows, the session that a server opens, and handles.
void WirePlayer::HearMessage(const std::string& recorded, const std::string& live) {
  ASSERT_EQ(live.size(), recorded.size()) << TextOfBytes(live);
  const uint16_t kind = Load16(recorded, 10);
  if ((kind & 0xff) == kRequest || (kind & 0xff) == kOpen) {
    for (size_t i = 0; i < ((kind >> 8) & 15u); ++i) {
      Learn(recorded, live, kCallHeader + i * kWindow, 8);
    }
  }
  // SessionReply: two fields of 8 bytes, which no message of the recorded service begins with.
  if (kind == kReply && recorded.size() > kCallHeader + 18 && recorded[kCallHeader] == 0x09 &&
      recorded[kCallHeader + 9] == 0x11) {
    Learn(recorded, live, kCallHeader + 1, 8);
    Learn(recorded, live, kCallHeader + 10, 8);
  }
  // weft.RemoteRegion: its field, its length, and the handle's version.
  const size_t handle = recorded.find("\x0a\x38\x01", kCallHeader);
  if (handle != std::string::npos && handle + 2 + kHandle <= recorded.size()) {
    Learn(recorded, live, handle + 2, kHandle);
    // Rights; offset, length and expiry.
    EXPECT_EQ(live.substr(handle + 2, 4), recorded.substr(handle + 2, 4));
    EXPECT_EQ(live.substr(handle + 18, 24), recorded.substr(handle + 18, 24));
  }
}

void WirePlayer::Learn(const std::string& recorded, const std::string& live, size_t at,
                       size_t bytes) {
  ASSERT_GE(std::min(recorded.size(), live.size()), at + bytes);
  names_.emplace(recorded.substr(at, bytes), live.substr(at, bytes));
}

std::string WirePlayer::Translated(std::string_view bytes) const {
  std::string translated;
  while (!bytes.empty()) {
    const auto found = std::find_if(names_.begin(), names_.end(), [&bytes](const auto& name) {
      return bytes.substr(0, name.first.size()) == name.first;
    });
    const size_t taken = found != names_.end() ? found->first.size() : 1;
    translated += found != names_.end() ? found->second : std::string(bytes.substr(0, 1));
    bytes.remove_prefix(taken);
  }
  return translated;
}

}  // namespace weft::test
