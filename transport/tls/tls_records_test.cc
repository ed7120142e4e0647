#include "transport/tls/tls_records.h"

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "core/strings.h"
#include "transport/descriptor.h"
#include "transport/tls/testing/openssl_peer.h"
#include "transport/tls/tls_stream.h"

namespace weft {
namespace {

using Kind = TlsRecords::Kind;
using Message = TlsRecords::Message;
using Alert = TlsRecords::Alert;

constexpr uint16_t kAes128 = 0x1301;
constexpr uint16_t kAes256 = 0x1302;
constexpr uint16_t kChaCha = 0x1303;

std::string Hex(std::string_view digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

std::string Noise(size_t count) {
  Random random(count + 1);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.Next64());
  return bytes;
}

// As OpenSSL's key log has them.
void NoteBoth(TlsTrafficSecrets* secrets, int digits) {
  const std::string random(64, '0');
  secrets->Note(StrCat("CLIENT_TRAFFIC_SECRET_0 ", random, " ", std::string(digits, 'c')));
  secrets->Note(StrCat("SERVER_TRAFFIC_SECRET_0 ", random, " ", std::string(digits, '5')));
}

std::string Seal(TlsRecords* records, Kind kind, std::string_view content) {
  const iovec piece{const_cast<char*>(content.data()), content.size()};
  IovecCursor from(&piece, 1);
  std::string made(content.size() + TlsRecords::kAddedBytes + TlsRecords::kKeyUpdateBytes, '\0');
  made.resize(
      records->Seal(kind, &from, content.size(), reinterpret_cast<std::byte*>(made.data())));
  return made;
}

std::string KeyUpdateOf(TlsRecords* records, bool requests_update) {
  std::string made(TlsRecords::kKeyUpdateBytes, '\0');
  made.resize(records->SealKeyUpdate(requests_update, reinterpret_cast<std::byte*>(made.data())));
  return made;
}

struct Result {
  Kind kind = Kind::kWrong;
  std::string content;
};

// The first record of `bytes`, which loses it.
Result Open(TlsRecords* records, std::string* bytes) {
  size_t size = 0;
  if (!records->Measure(AsBytes(*bytes), &size) || size == 0 || size > bytes->size()) return {};
  auto* const begin = reinterpret_cast<std::byte*>(bytes->data());
  std::byte* const place = begin + TlsRecords::kHeaderBytes;
  const TlsRecords::Opened opened = records->Open(ByteSpan(begin, size), place);
  Result result{opened.kind, std::string(AsStringView(ByteSpan(place, opened.bytes)))};
  bytes->erase(0, size);
  return result;
}

Result OpenOnly(TlsRecords* records, std::string bytes) { return Open(records, &bytes); }

// Both sides of a connection, and nothing between them.
class TlsRecordsTest : public ::testing::TestWithParam<uint16_t> {
 protected:
  TlsRecordsTest() { Restart(TlsRecords::kRecordsPerKey); }
  void Restart(uint64_t records_per_key) {
    TlsTrafficSecrets secrets;
    NoteBoth(&secrets, GetParam() == kAes128 ? 64 : 96);
    client_ = TlsRecords::Create(GetParam(), TlsRole::kClient, secrets, records_per_key);
    server_ = TlsRecords::Create(GetParam(), TlsRole::kServer, secrets, records_per_key);
  }
  // What the server finds wrong with it.
  void ExpectWrong(std::string record, Alert alert) {
    size_t size = 0;
    if (server_->Measure(AsBytes(record), &size)) {
      EXPECT_EQ(Open(server_.get(), &record).kind, Kind::kWrong);
    }
    EXPECT_EQ(server_->fault().alert, alert) << server_->fault().what;
    EXPECT_NE(server_->fault().what, nullptr);
  }
  Message Take(TlsRecords* records, const std::string& record) {
    const Result result = OpenOnly(records, record);
    EXPECT_NE(result.kind, Kind::kData);
    return records->Take(result.kind, AsBytes(result.content));
  }

  std::unique_ptr<TlsRecords> client_;
  std::unique_ptr<TlsRecords> server_;
};

INSTANTIATE_TEST_SUITE_P(Suites, TlsRecordsTest, ::testing::Values(kAes128, kAes256),
                         [](const auto& info) {
                           return std::string(info.param == kAes128 ? "Aes128" : "Aes256");
                         });

// RFC 8448, 3: the first application data of the client.
TEST(TlsRecordsOfTheStandardTest, AreMadeAndOpenedAsRfc8448SaysTheyAre) {
  TlsTrafficSecrets secrets;
  secrets.Note(
      "CLIENT_TRAFFIC_SECRET_0 00 "
      "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5");
  secrets.Note(
      "SERVER_TRAFFIC_SECRET_0 00 "
      "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643");
  auto client = TlsRecords::Create(kAes128, TlsRole::kClient, secrets);
  auto server = TlsRecords::Create(kAes128, TlsRole::kServer, secrets);
  ASSERT_NE(client, nullptr);
  std::string content;
  for (char byte = 0; byte < 50; ++byte) content += byte;
  const std::string expected =
      Hex("1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a"
          "20441e2b62974e1f5a6292a2977014bd1e3deae63aeebb21694915e4");
  EXPECT_EQ(Seal(client.get(), Kind::kData, content), expected);
  const Result result = OpenOnly(server.get(), expected);
  EXPECT_EQ(result.kind, Kind::kData);
  EXPECT_EQ(result.content, content);
}

TEST_P(TlsRecordsTest, DataOfManySizesOpensInOrder) {
  for (const size_t bytes : {0, 1, 15, 16, 17, 64, 1000, 1024, 5000, 16383, 16384}) {
    const std::string content = Noise(bytes);
    std::string record = Seal(client_.get(), Kind::kData, content);
    EXPECT_EQ(record.size(), bytes + TlsRecords::kAddedBytes);
    const Result result = Open(server_.get(), &record);
    EXPECT_EQ(result.kind, Kind::kData) << bytes;
    EXPECT_EQ(result.content, content) << bytes;
  }
}

TEST_P(TlsRecordsTest, ARecordIsGatheredFromPiecesOfAllSizes) {
  const std::string content = Noise(16384);
  for (const size_t step : {1, 7, 100, 1023, 1024, 3000, 9000}) {
    std::vector<iovec> pieces;
    for (size_t at = 0; at < content.size(); at += step) {
      pieces.push_back(
          {const_cast<char*>(content.data()) + at, std::min(step, content.size() - at)});
      pieces.push_back({nullptr, 0});
    }
    IovecCursor from(pieces.data(), static_cast<int>(pieces.size()));
    std::string record(TlsRecords::kMostBytes, '\0');
    record.resize(client_->Seal(Kind::kData, &from, content.size(),
                                reinterpret_cast<std::byte*>(record.data())));
    EXPECT_EQ(from.left(), 0u);
    EXPECT_TRUE(Open(server_.get(), &record).content == content) << step;
  }
}

TEST_P(TlsRecordsTest, PaddingIsTakenOff) {
  // What stands in the place of the content type is a zero: the type is before it.
  const std::string padded("abc\x17\0\0\0", 7);
  const Result result = OpenOnly(server_.get(), Seal(client_.get(), Kind{0}, padded));
  EXPECT_EQ(result.kind, Kind::kData);
  EXPECT_EQ(result.content, "abc");
}

TEST_P(TlsRecordsTest, NoByteOfARecordCanBeChanged) {
  const std::string record = Seal(client_.get(), Kind::kData, "0123456789");
  for (size_t at = 0; at < record.size(); ++at) {
    std::string changed = record;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_EQ(OpenOnly(server_.get(), changed).kind, Kind::kWrong) << at;
  }
  // What did not open has changed nothing.
  EXPECT_EQ(OpenOnly(server_.get(), record).content, "0123456789");
}

TEST_P(TlsRecordsTest, RecordsOpenOnceAndInTheirOrderAndOnlyForThePeer) {
  const std::string first = Seal(client_.get(), Kind::kData, "first");
  const std::string second = Seal(client_.get(), Kind::kData, "second");
  ExpectWrong(second, Alert::kBadRecordMac);
  EXPECT_EQ(OpenOnly(server_.get(), first).content, "first");
  ExpectWrong(first, Alert::kBadRecordMac);
  EXPECT_EQ(OpenOnly(client_.get(), second).kind, Kind::kWrong) << "its own";
  EXPECT_EQ(OpenOnly(server_.get(), second).content, "second");
}

TEST_P(TlsRecordsTest, APartOfAHeaderSaysNothingYet) {
  const std::string record = Seal(client_.get(), Kind::kData, "content");
  size_t bytes = 1;
  for (size_t part = 0; part < TlsRecords::kHeaderBytes; ++part) {
    EXPECT_TRUE(server_->Measure(AsBytes(record).first(part), &bytes));
    EXPECT_EQ(bytes, 0u);
  }
  EXPECT_TRUE(server_->Measure(AsBytes(record).first(TlsRecords::kHeaderBytes), &bytes));
  EXPECT_EQ(bytes, record.size());
}

TEST_P(TlsRecordsTest, WrongHeadersAreRefusedBeforeTheRestHasCome) {
  ExpectWrong(Hex("1703034012"), Alert::kRecordOverflow);
  ExpectWrong(Hex("170303ffff"), Alert::kRecordOverflow);
  ExpectWrong(Hex("1703030010"), Alert::kDecodeError);
  ExpectWrong(Hex("1703030000"), Alert::kDecodeError);
  ExpectWrong(Hex("1503030002"), Alert::kUnexpectedMessage);  // an alert in the clear
  ExpectWrong(Hex("1603030020"), Alert::kUnexpectedMessage);
  ExpectWrong(Hex("1403030001"), Alert::kUnexpectedMessage);  // change_cipher_spec, too late
  ExpectWrong("GET / HTTP", Alert::kUnexpectedMessage);
  size_t bytes = 0;
  EXPECT_TRUE(server_->Measure(AsBytes(Hex("1703034011")), &bytes));
  EXPECT_EQ(bytes, TlsRecords::kMostBytes);
}

TEST_P(TlsRecordsTest, ARecordWithoutAContentTypeOrWithAnUnknownOneIsRefused) {
  ExpectWrong(Seal(client_.get(), Kind{0}, ""), Alert::kUnexpectedMessage);
  ExpectWrong(Seal(client_.get(), Kind{0}, std::string(100, '\0')), Alert::kUnexpectedMessage);
  for (const int type : {1, 20, 24, 255}) {
    ExpectWrong(Seal(client_.get(), static_cast<Kind>(type), "content"), Alert::kUnexpectedMessage);
  }
}

TEST_P(TlsRecordsTest, AlertsSayWhatTheySay) {
  const auto alert = [&](std::string_view content) {
    return Take(server_.get(), Seal(client_.get(), Kind::kAlert, content));
  };
  EXPECT_EQ(alert(std::string_view("\x01\x00", 2)), Message::kEnd);
  EXPECT_EQ(alert(std::string_view("\x02\x00", 2)), Message::kEnd);
  EXPECT_EQ(alert("\x01\x5a"), Message::kIgnored);  // user_canceled
  EXPECT_EQ(alert("\x02\x14"), Message::kFatalAlert);
  EXPECT_EQ(server_->fatal_alert(), 20);
  EXPECT_EQ(alert("\x01\x28"), Message::kFatalAlert) << "the level says nothing";
  EXPECT_EQ(alert("\x02"), Message::kWrong);
  EXPECT_EQ(alert(""), Message::kWrong);
  EXPECT_EQ(alert(std::string_view("\x01\x00\x00\x00", 4)), Message::kWrong);
  std::string own(TlsRecords::kAlertBytes, '\0');
  auto* const place = reinterpret_cast<std::byte*>(own.data());
  EXPECT_EQ(client_->SealAlert(Alert::kCloseNotify, place), own.size());
  EXPECT_EQ(Take(server_.get(), own), Message::kEnd);
}

TEST_P(TlsRecordsTest, KeysAreUpdatedEachWayByItself) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Take(server_.get(), KeyUpdateOf(client_.get(), /*requests_update=*/false)),
              Message::kIgnored);
    EXPECT_EQ(OpenOnly(server_.get(), Seal(client_.get(), Kind::kData, "new")).content, "new");
    EXPECT_EQ(OpenOnly(client_.get(), Seal(server_.get(), Kind::kData, "old")).content, "old");
  }
  EXPECT_EQ(Take(server_.get(), KeyUpdateOf(client_.get(), /*requests_update=*/true)),
            Message::kKeyUpdateRequested);
  EXPECT_EQ(Take(client_.get(), KeyUpdateOf(server_.get(), /*requests_update=*/false)),
            Message::kIgnored);
  EXPECT_EQ(OpenOnly(client_.get(), Seal(server_.get(), Kind::kData, "newer")).content, "newer");
}

TEST_P(TlsRecordsTest, ARecordUnderTheOldKeyDoesNotOpenBehindAnUpdate) {
  Restart(TlsRecords::kRecordsPerKey);
  const std::string update = KeyUpdateOf(client_.get(), false);
  TlsTrafficSecrets secrets;
  NoteBoth(&secrets, GetParam() == kAes128 ? 64 : 96);
  auto stubborn = TlsRecords::Create(GetParam(), TlsRole::kClient, secrets);
  Seal(stubborn.get(), Kind::kData, "number 0");
  ASSERT_EQ(Take(server_.get(), update), Message::kIgnored);
  ExpectWrong(Seal(stubborn.get(), Kind::kData, "number 1, old key"), Alert::kBadRecordMac);
}

TEST_P(TlsRecordsTest, WrongKeyUpdatesAreRefused) {
  const auto message = [&](std::string_view content) {
    return Take(server_.get(), Seal(client_.get(), Kind::kHandshake, content));
  };
  const std::string update("\x18\0\0\x01\0", 5);
  EXPECT_EQ(message(std::string_view("\x18\0\0\x01\x02", 5)), Message::kWrong);
  EXPECT_EQ(server_->fault().alert, Alert::kIllegalParameter);
  EXPECT_EQ(message(std::string_view("\x18\0\0\x02\0\0", 6)), Message::kWrong);
  EXPECT_EQ(server_->fault().alert, Alert::kDecodeError);
  EXPECT_EQ(message(std::string_view("\x18\0\0\0", 4)), Message::kWrong);
  EXPECT_EQ(message(update + update), Message::kWrong) << "the second is under the old key";
  EXPECT_EQ(message(update.substr(0, 4)), Message::kWrong) << "cut";
  EXPECT_EQ(message(update.substr(0, 3)), Message::kWrong) << "cut";
  EXPECT_EQ(message(""), Message::kWrong);
  EXPECT_EQ(message(update), Message::kIgnored);
}

TEST_P(TlsRecordsTest, AClientIgnoresTicketsAndNobodyTakesAnythingElse) {
  const std::string ticket = std::string("\x04\0\0\x03", 4) + "abc";
  const std::string update("\x18\0\0\x01\x01", 5);
  const auto to_client = [&](std::string_view content) {
    return Take(client_.get(), Seal(server_.get(), Kind::kHandshake, content));
  };
  EXPECT_EQ(to_client(ticket), Message::kIgnored);
  EXPECT_EQ(to_client(ticket + ticket), Message::kIgnored);
  EXPECT_EQ(to_client(ticket.substr(0, 6)), Message::kWrong) << "cut";
  EXPECT_EQ(Take(server_.get(), Seal(client_.get(), Kind::kHandshake, ticket)), Message::kWrong);
  for (const int type : {0, 1, 2, 5, 8, 11, 13, 15, 20, 254}) {
    const std::string other = std::string(1, static_cast<char>(type)) + std::string(3, '\0');
    EXPECT_EQ(to_client(other), Message::kWrong) << type;
  }
  EXPECT_EQ(to_client(ticket + update), Message::kKeyUpdateRequested);
}

TEST_P(TlsRecordsTest, AKeyIsUpdatedBeforeItIsUsedUp) {
  constexpr uint64_t kPerKey = 4;
  Restart(kPerKey);
  int updates = 0;
  uint64_t under_this_key = 0;
  for (int i = 0; i < 100; ++i) {
    std::string bytes = Seal(client_.get(), Kind::kData, StrCat("number ", i));
    while (!bytes.empty()) {
      const Result result = Open(server_.get(), &bytes);
      ASSERT_NE(result.kind, Kind::kWrong) << server_->fault().what;
      ASSERT_LE(++under_this_key, kPerKey);
      if (result.kind == Kind::kData) {
        EXPECT_EQ(result.content, StrCat("number ", i));
        continue;
      }
      ASSERT_EQ(server_->Take(result.kind, AsBytes(result.content)), Message::kIgnored);
      ++updates;
      under_this_key = 0;
    }
  }
  EXPECT_EQ(updates, 33);
}

TEST_P(TlsRecordsTest, APeerThatKeepsItsKeyTooLongIsAskedForTheNextOnce) {
  TlsTrafficSecrets secrets;
  NoteBoth(&secrets, GetParam() == kAes128 ? 64 : 96);
  server_ = TlsRecords::Create(GetParam(), TlsRole::kServer, secrets, /*records_per_key=*/3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(server_->IsTimeToAsk()) << i;
    OpenOnly(server_.get(), Seal(client_.get(), Kind::kData, "data"));
  }
  EXPECT_TRUE(server_->IsTimeToAsk());
  EXPECT_EQ(Take(client_.get(), KeyUpdateOf(server_.get(), /*requests_update=*/true)),
            Message::kKeyUpdateRequested);
  EXPECT_FALSE(server_->IsTimeToAsk());
  EXPECT_EQ(Take(server_.get(), KeyUpdateOf(client_.get(), /*requests_update=*/false)),
            Message::kIgnored);
  for (int i = 0; i < 3; ++i) OpenOnly(server_.get(), Seal(client_.get(), Kind::kData, "data"));
  EXPECT_TRUE(server_->IsTimeToAsk()) << "and again for the key behind it";
}

TEST(TlsTrafficSecretsTest, TakesTheTwoLinesAndNoOthers) {
  TlsTrafficSecrets secrets;
  secrets.Note("CLIENT_HANDSHAKE_TRAFFIC_SECRET 00 aaaa");
  secrets.Note("EXPORTER_SECRET 00 aaaa");
  secrets.Note("CLIENT_TRAFFIC_SECRET_0 00 abc");
  secrets.Note("CLIENT_TRAFFIC_SECRET_0 00 abxy");
  secrets.Note("CLIENT_TRAFFIC_SECRET_0 00 " + std::string(98, 'a'));
  secrets.Note("");
  EXPECT_TRUE(secrets.of(TlsRole::kClient).empty());
  EXPECT_TRUE(secrets.of(TlsRole::kServer).empty());
  secrets.Note("SERVER_TRAFFIC_SECRET_0 00 0aFf");
  EXPECT_EQ(AsStringView(secrets.of(TlsRole::kServer)), "\x0a\xff");
  EXPECT_TRUE(secrets.of(TlsRole::kClient).empty());
}

TEST(TlsTrafficSecretsTest, MakeNoRecordsOfAnotherSuiteOrOfHalf) {
  TlsTrafficSecrets of_384, of_256, half;
  NoteBoth(&of_384, 96);
  NoteBoth(&of_256, 64);
  half.Note(StrCat("CLIENT_TRAFFIC_SECRET_0 00 ", std::string(96, 'c')));
  EXPECT_NE(TlsRecords::Create(kAes256, TlsRole::kClient, of_384), nullptr);
  EXPECT_NE(TlsRecords::Create(kAes128, TlsRole::kClient, of_256), nullptr);
  EXPECT_EQ(TlsRecords::Create(kChaCha, TlsRole::kClient, of_256), nullptr);
  EXPECT_EQ(TlsRecords::Create(kAes256, TlsRole::kClient, of_256), nullptr);
  EXPECT_EQ(TlsRecords::Create(kAes128, TlsRole::kClient, of_384), nullptr);
  EXPECT_EQ(TlsRecords::Create(kAes256, TlsRole::kClient, half), nullptr);
  EXPECT_EQ(TlsRecords::Create(kAes256, TlsRole::kServer, half), nullptr);
}

// --- a stream of ours, and a peer that is OpenSSL's ----------------------------------------------

constexpr char kName[] = "fleet";
const std::string kSecret(kMinPskBytes, 's');

class TlsRecordsPeerTest : public ::testing::TestWithParam<TlsRole> {
 protected:
  TlsRecordsPeerTest() { Meet(/*tickets=*/0); }

  void Meet(size_t tickets) {
    peer_.reset();
    ours_.reset();
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    our_fd_.Reset(fds[0]);
    peer_fd_.Reset(fds[1]);
    SecurityOptions options;
    options.psk_name = kName;
    options.psk_secret = kSecret;
    credentials_ = *TlsCredentials::Create(GetParam(), options);
    ours_ = std::make_unique<TlsStream>(our_fd_.get());
    ASSERT_TRUE(ours_->Start(credentials_.get(), &scratch_, 0, "localhost").ok());
    const bool client = GetParam() == TlsRole::kClient;
    peer_ = std::make_unique<OpensslPeer>(client ? TlsRole::kServer : TlsRole::kClient,
                                          peer_fd_.get(), kName, kSecret, tickets);
    for (int i = 0; i < 10; ++i) {
      ours_->Flush();
      peer_->Shake();
    }
    ASSERT_EQ(ours_->state(), TlsStream::State::kUp) << ours_->error();
    ASSERT_EQ(ours_->records_by(), TlsStream::RecordsBy::kWeft);
  }

  // From here on the peer says what it likes, in its own role and under its own keys.
  void MakeHostile() {
    const bool client = GetParam() == TlsRole::kClient;
    forger_ =
        TlsRecords::Create(kAes256, client ? TlsRole::kServer : TlsRole::kClient, peer_->secrets());
    ASSERT_NE(forger_, nullptr);
  }
  void SendRaw(std::string_view bytes) {
    ASSERT_EQ(::send(peer_fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void Forge(Kind kind, std::string_view content) { SendRaw(Seal(forger_.get(), kind, content)); }

  ssize_t Write(std::string_view text) {
    const iovec piece{const_cast<char*>(text.data()), text.size()};
    return ours_->Write(&piece, 1);
  }
  // All that is there now.
  std::string Read() {
    std::string all;
    for (;;) {
      char bytes[5000];
      const iovec pieces[] = {{bytes, 1000}, {bytes + 1000, 4000}};
      last_ = ours_->Read(pieces, 2);
      if (last_ <= 0 &&
          !(last_ < 0 && ours_->state() == TlsStream::State::kUp && ours_->has_pending())) {
        return all;
      }
      if (last_ > 0) all.append(bytes, static_cast<size_t>(last_));
    }
  }
  // Both ways, in pieces, however long it takes.
  void ExpectToCarry(const std::string& content) {
    std::string received;
    for (std::string_view left = content; received.size() < content.size();) {
      const ssize_t taken = left.empty() ? 0 : Write(left);
      if (taken > 0) left.remove_prefix(static_cast<size_t>(taken));
      ours_->Flush();
      received += peer_->Read();
      ASSERT_EQ(peer_->error(), SSL_ERROR_WANT_READ);
    }
    EXPECT_TRUE(received == content) << content.size();
    received.clear();
    bool written = content.empty();
    while (received.size() < content.size()) {
      written = written || peer_->Write(content);
      received += Read();
      ASSERT_EQ(ours_->state(), TlsStream::State::kUp) << ours_->error();
    }
    EXPECT_TRUE(received == content) << content.size();
  }
  void ExpectLoss(std::string_view words) {
    EXPECT_EQ(Read(), "");
    EXPECT_EQ(ours_->state(), TlsStream::State::kFailed);
    EXPECT_EQ(ours_->error().code(), absl::StatusCode::kDataLoss) << ours_->error();
    EXPECT_NE(ours_->error().ToString().find(words), std::string::npos) << ours_->error();
  }

  TlsScratch scratch_;
  std::unique_ptr<TlsCredentials> credentials_;
  Descriptor our_fd_;
  Descriptor peer_fd_;
  std::unique_ptr<TlsStream> ours_;
  std::unique_ptr<OpensslPeer> peer_;
  std::unique_ptr<TlsRecords> forger_;
  ssize_t last_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Roles, TlsRecordsPeerTest,
                         ::testing::Values(TlsRole::kClient, TlsRole::kServer),
                         [](const auto& info) {
                           return std::string(info.param == TlsRole::kClient ? "Client" : "Server");
                         });

TEST_P(TlsRecordsPeerTest, DataOfManySizesGoesBothWays) {
  for (const size_t bytes : {1, 16, 64, 1000, 16383, 16384, 16385, 65536, 65537, 1'000'001}) {
    ExpectToCarry(Noise(bytes));
  }
}

TEST_P(TlsRecordsPeerTest, SmallAndPaddedRecordsOfItsAreRead) {
  ASSERT_EQ(SSL_set_max_send_fragment(peer_->ssl(), 512), 1);
  ExpectToCarry(Noise(100'000));
  ASSERT_EQ(SSL_set_block_padding(peer_->ssl(), 400), 1);
  ExpectToCarry(Noise(100'000));
  ASSERT_EQ(SSL_set_max_send_fragment(peer_->ssl(), 16384), 1);
  ExpectToCarry(Noise(100'000));
}

TEST_P(TlsRecordsPeerTest, ItsKeyUpdatesAreFollowedAndAnswered) {
  for (const int kind : {SSL_KEY_UPDATE_NOT_REQUESTED, SSL_KEY_UPDATE_REQUESTED}) {
    for (int i = 0; i < 5; ++i) {
      ASSERT_EQ(SSL_key_update(peer_->ssl(), kind), 1);
      ExpectToCarry(Noise(20'000));
    }
  }
}

// As behind 2^24 records: with the records of one side in the place of its OpenSSL.
TEST_P(TlsRecordsPeerTest, OpenSslFollowsOurKeyUpdatesAndAnswersThem) {
  Descriptor ours_fd, theirs_fd;
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  ours_fd.Reset(fds[0]);
  theirs_fd.Reset(fds[1]);
  const bool client = GetParam() == TlsRole::kClient;
  OpensslPeer ours(GetParam(), ours_fd.get(), kName, kSecret);
  OpensslPeer theirs(client ? TlsRole::kServer : TlsRole::kClient, theirs_fd.get(), kName, kSecret);
  for (int i = 0; i < 10; ++i) ours.Shake(), theirs.Shake();
  auto records = TlsRecords::Create(kAes256, GetParam(), ours.secrets(), /*records_per_key=*/4);
  ASSERT_NE(records, nullptr);
  for (int i = 0; i < 20; ++i) {
    std::string sent = i % 7 == 6 ? KeyUpdateOf(records.get(), /*requests_update=*/true) : "";
    sent += Seal(records.get(), Kind::kData, StrCat("number ", i));
    ASSERT_EQ(::send(ours_fd.get(), sent.data(), sent.size(), 0),
              static_cast<ssize_t>(sent.size()));
    EXPECT_EQ(theirs.Read(), StrCat("number ", i));
    ASSERT_TRUE(theirs.Write("answer"));
    std::string received(1000, '\0');
    const ssize_t count = ::recv(ours_fd.get(), received.data(), received.size(), 0);
    ASSERT_GT(count, 0);
    received.resize(static_cast<size_t>(count));
    std::string answers;
    while (!received.empty()) {
      const Result result = Open(records.get(), &received);
      ASSERT_NE(result.kind, Kind::kWrong) << i << ": " << records->fault().what;
      if (result.kind == Kind::kData) {
        answers += result.content;
      } else {
        EXPECT_EQ(records->Take(result.kind, AsBytes(result.content)), Message::kIgnored);
      }
    }
    EXPECT_EQ(answers, "answer");
  }
}

// The peer asks for keys while the socket is full in the midst of a record of ours, and its own
// records come in pieces of any size: both ways stay whole, and in order.
TEST_P(TlsRecordsPeerTest, KeyUpdatesBothWaysWhileTheSocketIsFullInTheMidstOfARecord) {
  MakeHostile();
  const std::string sent = Noise(3'000'000);
  const std::string theirs = Noise(600'000);
  auto opener = std::move(forger_);
  std::string wire, wanted_wire, received, read;
  std::string_view left = sent;
  std::string_view rest = theirs;
  uint32_t seed = 12345;
  const auto next = [&seed](uint32_t below) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
  };
  int updates = 0;
  int turns = 0;
  while (received.size() < sent.size() || read.size() < theirs.size()) {
    ASSERT_LT(++turns, 200'000);
    if (!left.empty()) {
      const ssize_t taken = Write(left.substr(0, next(70'000) + 1));
      if (taken > 0) left.remove_prefix(static_cast<size_t>(taken));
    }
    if (wanted_wire.empty() && !rest.empty()) {
      const size_t bytes = std::min<size_t>(rest.size(), next(20) == 0 ? 1 : next(16'000) + 1);
      if (next(3) == 0 && updates < 25) {
        wanted_wire += KeyUpdateOf(opener.get(), /*requests_update=*/true);
        ++updates;
      }
      wanted_wire += Seal(opener.get(), Kind::kData, rest.substr(0, bytes));
      rest.remove_prefix(bytes);
    }
    if (!wanted_wire.empty()) {
      const size_t bytes = std::min<size_t>(wanted_wire.size(), next(3000) + 1);
      const ssize_t count = ::send(peer_fd_.get(), wanted_wire.data(), bytes, MSG_NOSIGNAL);
      if (count > 0) wanted_wire.erase(0, static_cast<size_t>(count));
    }
    read += Read();
    ASSERT_EQ(ours_->state(), TlsStream::State::kUp) << ours_->error();
    if (next(4) != 0) continue;  // a slow reader
    std::string bytes(next(50'000) + 1, '\0');
    const ssize_t count = ::recv(peer_fd_.get(), bytes.data(), bytes.size(), 0);
    if (count > 0) wire.append(bytes, 0, static_cast<size_t>(count));
    for (size_t whole = 0; opener->Measure(AsBytes(wire), &whole) && whole > 0;) {
      if (whole > wire.size()) break;
      const Result result = Open(opener.get(), &wire);
      ASSERT_NE(result.kind, Kind::kWrong) << opener->fault().what;
      if (result.kind == Kind::kData) {
        received += result.content;
      } else {
        ASSERT_EQ(opener->Take(result.kind, AsBytes(result.content)), Message::kIgnored);
      }
    }
    ours_->Flush();
  }
  EXPECT_TRUE(received == sent);
  EXPECT_TRUE(read == theirs);
  EXPECT_GT(updates, 5);
}

TEST_P(TlsRecordsPeerTest, TicketsBehindItsHandshakeAreIgnored) {
  if (GetParam() != TlsRole::kClient) return;  // a server gives them
  Meet(/*tickets=*/2);
  ExpectToCarry(Noise(1000));
}

TEST_P(TlsRecordsPeerTest, EachSideHearsOfTheOthersEnd) {
  ASSERT_TRUE(peer_->Write("last words"));
  ASSERT_GE(SSL_shutdown(peer_->ssl()), 0);
  EXPECT_EQ(Read(), "last words");
  EXPECT_EQ(last_, 0);
  EXPECT_EQ(ours_->state(), TlsStream::State::kUp);
  EXPECT_EQ(Write("and ours"), 8);
  ours_->End();
  EXPECT_EQ(peer_->Read(), "and ours");
  EXPECT_EQ(peer_->error(), SSL_ERROR_ZERO_RETURN);
}

TEST_P(TlsRecordsPeerTest, ACutRecordIsNoEnd) {
  MakeHostile();
  const std::string record = Seal(forger_.get(), Kind::kData, "half of it");
  SendRaw(record.substr(0, record.size() / 2));
  EXPECT_EQ(Read(), "");
  EXPECT_FALSE(ours_->has_pending());
  ::shutdown(peer_fd_.get(), SHUT_WR);
  EXPECT_EQ(Read(), "");
  EXPECT_EQ(ours_->error().code(), absl::StatusCode::kUnavailable) << ours_->error();
}

TEST_P(TlsRecordsPeerTest, NothingOfAChangedRecordIsDeliveredAndThePeerIsTold) {
  MakeHostile();
  std::string records = Seal(forger_.get(), Kind::kData, "honest");
  records += Seal(forger_.get(), Kind::kData, "changed");
  records[records.size() - 20] = static_cast<char>(records[records.size() - 20] ^ 4);
  records += Seal(forger_.get(), Kind::kData, "behind it");
  SendRaw(records);
  std::string room(100, '.');
  const iovec piece{room.data(), room.size()};
  EXPECT_EQ(ours_->Read(&piece, 1), 6);
  EXPECT_EQ(room, "honest" + std::string(94, '.')) << "more has got into the reader's memory";
  EXPECT_TRUE(ours_->has_pending());
  ExpectLoss("does not open");
  EXPECT_EQ(peer_->Read(), "");
  EXPECT_EQ(peer_->error(), SSL_ERROR_SSL);
  EXPECT_EQ(ERR_GET_REASON(ERR_peek_error()), SSL_R_SSLV3_ALERT_BAD_RECORD_MAC);
}

// There is where a record is opened before anybody knows whether it is right.
TEST_P(TlsRecordsPeerTest, NothingOfAChangedRecordIsToldWhereNobodySeesItEither) {
  MakeHostile();
  std::string records = Seal(forger_.get(), Kind::kData, "honest");
  records += Seal(forger_.get(), Kind::kData, "changed");
  records[records.size() - 20] = static_cast<char>(records[records.size() - 20] ^ 4);
  SendRaw(records);
  std::string room(100, '.');
  const iovec piece{room.data(), room.size()};
  EXPECT_EQ(ours_->Read(&piece, 1, /*seen_bytes=*/0), 6);
  EXPECT_EQ(room.substr(0, 6), "honest");
  EXPECT_NE(room.substr(6), std::string(94, '.')) << "the test has nothing opened there";
  ExpectLoss("does not open");
  Meet(0);
  MakeHostile();
  records[5] = static_cast<char>(records[5] ^ 4);
  SendRaw(records);
  room.assign(100, '.');
  EXPECT_EQ(ours_->Read(&piece, 1, /*seen_bytes=*/1), -1);
  EXPECT_EQ(room, std::string(100, '.'));
}

TEST_P(TlsRecordsPeerTest, WhereverRecordsAreOpenedTheReaderGetsTheSame) {
  MakeHostile();
  for (const size_t first : {1, 9, 10, 11, 12, 13}) {
    for (const size_t seen : {0, 1, 9, 10, 11, 13, 14}) {
      Forge(Kind::kData, "0123456789");
      SendRaw(KeyUpdateOf(forger_.get(), /*requests_update=*/false));
      Forge(Kind::kData, "abc");
      std::string room(14, '.');
      const iovec pieces[] = {{room.data(), first}, {room.data() + first, room.size() - first}};
      ASSERT_EQ(ours_->Read(pieces, 2, seen), 13) << first << " " << seen;
      EXPECT_EQ(room.substr(0, 13), "0123456789abc") << first << " " << seen;
    }
    Meet(0);  // updates have a limit
    MakeHostile();
  }
}

TEST_P(TlsRecordsPeerTest, WhatIsNoRecordOfTls13IsRefused) {
  SendRaw(Hex("1703034100"));
  ExpectLoss("longer than");
  Meet(0);
  SendRaw(Hex("15030300020228"));  // an alert in the clear, by anybody
  ExpectLoss("not sealed");
  Meet(0);
  MakeHostile();
  Forge(static_cast<Kind>(20), "x");
  ExpectLoss("content type");
  Meet(0);
  MakeHostile();
  Forge(Kind::kHandshake, std::string_view("\x0d\0\0\0", 4));  // a certificate request
  ExpectLoss("handshake");
}

TEST_P(TlsRecordsPeerTest, AFatalAlertIsThePeersRefusal) {
  MakeHostile();
  Forge(Kind::kAlert, "\x02\x50");  // internal_error
  EXPECT_EQ(Read(), "");
  EXPECT_EQ(ours_->state(), TlsStream::State::kFailed);
  EXPECT_NE(ours_->error().ToString().find("the peer refuses"), std::string::npos)
      << ours_->error();
}

TEST_P(TlsRecordsPeerTest, ReadsHaveAnEndWhileThePeerSendsRecordsOfOneByte) {
  MakeHostile();
  constexpr int kSent = 1000;
  std::string records;
  for (int i = 0; i < kSent; ++i) records += Seal(forger_.get(), Kind::kData, "x");
  SendRaw(records);
  std::string room(10 * kSent, '.');
  const iovec piece{room.data(), room.size()};
  size_t received = 0;
  for (int i = 0; i < kSent / TlsStream::kMaxReadRecords; ++i) {
    const ssize_t count = ours_->Read(&piece, 1);
    ASSERT_EQ(count, TlsStream::kMaxReadRecords);
    EXPECT_TRUE(ours_->has_pending()) << "nobody would come back for the rest";
    EXPECT_LE(ours_->reserved(), TlsStream::kMaxReadBytes);
    received += static_cast<size_t>(count);
  }
  received += Read().size();
  EXPECT_EQ(received, kSent);
}

TEST_P(TlsRecordsPeerTest, FewEmptyRecordsAreTakenAndFloodsAreNot) {
  MakeHostile();
  for (uint64_t i = 0; i < TlsStream::kMaxOwnMessages; ++i) Forge(Kind::kData, "");
  Forge(Kind::kData, "content");
  EXPECT_EQ(Read(), "content");
  Forge(Kind::kData, "");
  ExpectLoss("floods");
}

TEST_P(TlsRecordsPeerTest, KeyUpdatesWithoutEndAreRefused) {
  MakeHostile();
  for (uint64_t i = 0; i <= TlsStream::kMaxOwnMessages; ++i) {
    SendRaw(KeyUpdateOf(forger_.get(), /*requests_update=*/true));
  }
  ExpectLoss("floods");
}

// A reader may take a byte at a time, and another time all.
TEST_P(TlsRecordsPeerTest, ReadersOfAllSizesGetWhatWasSent) {
  MakeHostile();
  Random random(5);
  std::string sent, received;
  for (int i = 0; i < 300; ++i) {
    const std::string content = Noise(random.Next64() % 3000);
    if (content.empty()) continue;
    Forge(Kind::kData, content);
    sent += content;
    std::string room(1 + random.Next64() % 4000, '\0');
    const size_t first = random.Next64() % room.size();
    const iovec pieces[] = {{room.data(), first}, {room.data() + first, room.size() - first}};
    const ssize_t count = ours_->Read(pieces, 2, /*seen_bytes=*/i % 3 * first);
    if (count > 0) received.append(room, 0, static_cast<size_t>(count));
  }
  received += Read();
  EXPECT_TRUE(received == sent);
}

}  // namespace
}  // namespace weft
