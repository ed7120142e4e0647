// Streams whose records the kernel makes and opens. Those that need it are skipped where it offers
// nothing, with its reason; the lab has kernels that do (docs/lab.md, `--kernel`).
#include "transport/tls/tls_kernel_stream.h"

#include <gtest/gtest.h>
#include <linux/tls.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/random.h"
#include "core/strings.h"
#include "transport/descriptor.h"
#include "transport/sockets/address.h"
#include "transport/sockets/socket.h"
#include "transport/tls/kernel_tls.h"
#include "transport/tls/testing/openssl_peer.h"
#include "transport/tls/testing/security_options.h"
#include "transport/tls/tls_credentials.h"
#include "transport/tls/tls_stream.h"

#ifndef TLS_RX_EXPECT_NO_PAD  // headers before Linux 6.0
#define TLS_RX_EXPECT_NO_PAD 4
#endif

namespace weft {
namespace {

using Kind = TlsRecords::Kind;
using Message = TlsRecords::Message;
using Alert = TlsRecords::Alert;
using RecordsBy = TlsStream::RecordsBy;

constexpr uint16_t kAes128 = 0x1301;
constexpr uint16_t kAes256 = 0x1302;

std::string Noise(size_t count) {
  Random random(count + 1);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.Next64());
  return bytes;
}

// Until one of these is so; -1: of nobody. False: nothing for twenty seconds.
bool AwaitAny(pollfd first, pollfd second) {
  pollfd asked[] = {first, second};
  return ::poll(asked, 2, /*timeout=*/20'000) > 0;
}

// Until the socket has something to be read, or has ended.
bool AwaitInput(int fd, int or_fd = -1) { return AwaitAny({fd, POLLIN, 0}, {or_fd, POLLIN, 0}); }

// Both ends of a connection over 127.0.0.1.
void MakeTcpPair(Descriptor* left, Descriptor* right) {
  const Descriptor listener = *ListenInternet(*ParseNumericAddress("127.0.0.1:0"));
  *left = *StartDial(*LocalAddress(listener.get()));
  ASSERT_TRUE(AwaitInput(listener.get()));
  *right = *AcceptClient(listener.get());
}

template <class Stream>
ssize_t WriteTo(Stream* stream, std::string_view text) {
  const iovec piece{const_cast<char*>(text.data()), text.size()};
  return stream->Write(&piece, 1);
}

// So many bytes, or what there was before the stream ended or failed.
template <class Stream>
std::string ReadFrom(Stream* stream, int fd, size_t bytes, size_t seen_bytes = ~size_t{0}) {
  std::string all;
  while (all.size() < bytes) {
    std::string room(std::min<size_t>(bytes - all.size(), 50'000), '\0');
    const iovec piece{room.data(), room.size()};
    const ssize_t count = stream->Read(&piece, 1, seen_bytes);
    if (count > 0) all.append(room, 0, static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EAGAIN)) break;
    if (count < 0 && !stream->has_pending() && !AwaitInput(fd)) break;
  }
  return all;
}

// --- what is offered -----------------------------------------------------------------------------

TEST(KernelTlsTest, IsOfferedWhereSocketsTakeEachKeyTwice) {
  Descriptor ends[2];
  ASSERT_NO_FATAL_FAILURE(MakeTcpPair(&ends[0], &ends[1]));
  bool all_taken = AttachKernelTls(ends[0].get()) == 0 && AttachKernelTls(ends[1].get()) == 0;
  TlsRecordKey key;
  key.bytes = TlsRecordKey::kMostBytes;
  for (int times = 0; times < 2; ++times) {
    all_taken = all_taken && GiveKernelTlsKey(ends[0].get(), KernelTlsSide::kOut, key) == 0 &&
                GiveKernelTlsKey(ends[1].get(), KernelTlsSide::kIn, key) == 0;
  }
  EXPECT_EQ(AskKernelForTls().ok(), all_taken) << AskKernelForTls();
}

// --- a stream, and a peer that says what no honest one does --------------------------------------

class TlsKernelStreamTest : public ::testing::TestWithParam<uint16_t> {
 protected:
  void SetUp() override {
    if (!AskKernelForTls().ok()) GTEST_SKIP() << AskKernelForTls();
    Connect();
  }
  void Connect(TlsRole role = TlsRole::kClient, uint64_t records_per_key = 1000) {
    MakeTcpPair(&socket_, &peer_socket_);
    Begin(role, records_per_key);
  }
  void Begin(TlsRole role, uint64_t records_per_key) {
    TlsTrafficSecrets secrets;
    const size_t digits = GetParam() == kAes128 ? 64 : 96;
    secrets.Note(StrCat("CLIENT_TRAFFIC_SECRET_0 0 ", std::string(digits, 'c')));
    secrets.Note(StrCat("SERVER_TRAFFIC_SECRET_0 0 ", std::string(digits, '5')));
    const TlsRole other = role == TlsRole::kClient ? TlsRole::kServer : TlsRole::kClient;
    peer_ = TlsRecords::Create(GetParam(), other, secrets);
    sealed_.clear();
    auto records = TlsRecords::Create(GetParam(), role, secrets, records_per_key);
    auto begun = TlsKernelStream::Begin(socket_.get(), &scratch_, &records);
    ASSERT_TRUE(begun.ok()) << begun.status();
    stream_ = *std::move(begun);
  }

  // --- the peer ---------------------------------------------------------------------------------
  void PeerSends(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(peer_socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      ASSERT_TRUE(sent > 0 || errno == EAGAIN);
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  // All at once, in the order in which they were sealed.
  void PeerSends(std::initializer_list<std::string> records) {
    std::string all;
    for (const std::string& record : records) all += record;
    PeerSends(all);
  }
  std::string PeerSeals(Kind kind, std::string_view content) {
    const iovec piece{const_cast<char*>(content.data()), content.size()};
    IovecCursor from(&piece, 1);
    std::string made(content.size() + TlsRecords::kAddedBytes + TlsRecords::kKeyUpdateBytes, '\0');
    made.resize(
        peer_->Seal(kind, &from, content.size(), reinterpret_cast<std::byte*>(made.data())));
    return made;
  }
  std::string PeerSealsUpdate(bool requests_update) {
    std::string made(TlsRecords::kKeyUpdateBytes, '\0');
    made.resize(peer_->SealKeyUpdate(requests_update, reinterpret_cast<std::byte*>(made.data())));
    return made;
  }
  void PeerSays(std::string_view text) { PeerSends(PeerSeals(Kind::kData, text)); }

  struct Heard {
    Kind kind = Kind::kWrong;
    std::string content;
    Message said = Message::kWrong;  // where it is no data
  };
  // The next record. kWrong: it does not open, or nothing has come for long, or the end has.
  Heard PeerHears() {
    size_t size = 0;
    while (peer_->Measure(AsBytes(sealed_), &size) && (size == 0 || size > sealed_.size())) {
      if (!AwaitInput(peer_socket_.get()) || !PeerReceives()) return {};
    }
    if (size == 0) return {};
    auto* const begin = reinterpret_cast<std::byte*>(sealed_.data());
    std::byte* const place = begin + TlsRecords::kHeaderBytes;
    const TlsRecords::Opened opened = peer_->Open(ByteSpan(begin, size), place);
    Heard heard{opened.kind, std::string(AsStringView(ByteSpan(place, opened.bytes)))};
    sealed_.erase(0, size);
    if (heard.kind == Kind::kAlert || heard.kind == Kind::kHandshake) {
      heard.said = peer_->Take(heard.kind, AsBytes(heard.content));
    }
    return heard;
  }
  // False: the end.
  bool PeerReceives() {
    char bytes[70'000];
    const ssize_t count = ::recv(peer_socket_.get(), bytes, sizeof(bytes), 0);
    if (count > 0) sealed_.append(bytes, static_cast<size_t>(count));
    return count > 0 || (count < 0 && errno == EAGAIN);
  }
  // Data of so many bytes, and how many key updates were among it.
  std::string PeerHearsData(size_t bytes, int* updates = nullptr) {
    std::string all;
    while (all.size() < bytes) {
      Heard heard = PeerHears();
      if (heard.kind == Kind::kHandshake && updates != nullptr) {
        ++*updates;
        continue;
      }
      if (heard.kind != Kind::kData) break;
      all += heard.content;
    }
    return all;
  }

  // --- the stream -------------------------------------------------------------------------------
  std::string Read(size_t bytes, size_t seen_bytes = ~size_t{0}) {
    return ReadFrom(stream_.get(), socket_.get(), bytes, seen_bytes);
  }
  // What one Read() returns, once there is something to be read.
  ssize_t ReadOnce(char* to, size_t bytes, size_t seen_bytes = ~size_t{0}) {
    EXPECT_TRUE(AwaitInput(socket_.get()));
    const iovec piece{to, bytes};
    return stream_->Read(&piece, 1, seen_bytes);
  }
  void ExpectFailed(absl::StatusCode code, const std::string& words) {
    EXPECT_EQ(Read(1), "");
    EXPECT_EQ(stream_->error().code(), code) << stream_->error();
    EXPECT_NE(stream_->error().ToString().find(words), std::string::npos) << stream_->error();
    EXPECT_EQ(stream_->unsent(), 0u) << "a stream that has failed sends nothing more";
  }
  void ExpectAlert(Alert alert) {
    const Heard heard = PeerHears();
    EXPECT_EQ(heard.kind, Kind::kAlert);
    EXPECT_EQ(heard.said, Message::kFatalAlert);
    EXPECT_EQ(peer_->fatal_alert(), static_cast<uint8_t>(alert));
  }
  uint64_t RecordsMade() { return KernelTlsRecords(socket_.get(), KernelTlsSide::kOut).value(); }

  Descriptor socket_;
  Descriptor peer_socket_;
  TlsScratch scratch_;
  std::unique_ptr<TlsKernelStream> stream_;
  std::unique_ptr<TlsRecords> peer_;
  std::string sealed_;  // received by the peer
};

INSTANTIATE_TEST_SUITE_P(Suites, TlsKernelStreamTest, ::testing::Values(kAes128, kAes256),
                         [](const auto& info) {
                           return std::string(info.param == kAes128 ? "Aes128" : "Aes256");
                         });

// --- data ----------------------------------------------------------------------------------------

TEST_P(TlsKernelStreamTest, BytesOfManySizesGoBothWays) {
  for (const size_t bytes : {1, 15, 1000, 16383, 16384}) {
    for (const size_t seen_bytes : {size_t{0}, ~size_t{0}}) {
      const std::string sent = Noise(bytes);
      ASSERT_EQ(WriteTo(stream_.get(), sent), static_cast<ssize_t>(bytes));
      EXPECT_TRUE(PeerHearsData(bytes) == sent) << bytes;
      PeerSays(sent);
      EXPECT_TRUE(Read(bytes, seen_bytes) == sent) << bytes;
    }
  }
}

TEST_P(TlsKernelStreamTest, AWriteIsFullRecordsAndTheRestAndIsCountedAsTheKernelDoes) {
  uint64_t records = 0;
  for (const size_t bytes : {1, 16384, 16385, 40'000, 65'536}) {
    const std::string sent = Noise(bytes);
    for (size_t at = 0; at < bytes;) {
      const ssize_t taken = WriteTo(stream_.get(), std::string_view(sent).substr(at));
      if (taken > 0) {
        at += static_cast<size_t>(taken);
        records += (static_cast<size_t>(taken) + 16383) / 16384;
      }
      EXPECT_EQ(RecordsMade(), records) << bytes;
      PeerReceives();
    }
    EXPECT_TRUE(PeerHearsData(bytes) == sent) << bytes;
  }
}

TEST_P(TlsKernelStreamTest, PiecesAreOneRecordAndOfVeryManyTheFirstLeave) {
  const std::string text = Noise(100);
  std::vector<iovec> pieces;
  for (size_t at = 0; at < text.size(); ++at) {
    pieces.push_back({const_cast<char*>(text.data()) + at, 1});
    pieces.push_back({nullptr, 0});
  }
  const ssize_t taken = stream_->Write(pieces.data(), static_cast<int>(pieces.size()));
  ASSERT_GT(taken, 0);
  EXPECT_EQ(RecordsMade(), 1u);
  const auto bytes = static_cast<size_t>(taken);
  EXPECT_EQ(PeerHearsData(bytes), text.substr(0, bytes));
}

TEST_P(TlsKernelStreamTest, AReadFillsPiecesAndLeavesTheRestOfARecordForTheNext) {
  const std::string sent = Noise(5000);
  for (const size_t seen_bytes : {size_t{0}, ~size_t{0}}) {
    PeerSays(sent);
    ASSERT_TRUE(AwaitInput(socket_.get()));
    std::string first(1000, '\0');
    std::string second(1, '\0');
    std::string third(999, '\0');
    const iovec pieces[] = {
        {first.data(), 1000}, {nullptr, 0}, {second.data(), 1}, {third.data(), 999}};
    ASSERT_EQ(stream_->Read(pieces, 4, seen_bytes), 2000);
    EXPECT_TRUE(first + second + third == sent.substr(0, 2000));
    EXPECT_TRUE(stream_->has_pending());
    EXPECT_TRUE(Read(3000, seen_bytes) == sent.substr(2000));
  }
}

TEST_P(TlsKernelStreamTest, NothingIsPendingOnceTheKernelSaysSo) {
  EXPECT_TRUE(stream_->has_pending()) << "the peer may have spoken right behind the handshake";
  PeerSays("text");
  EXPECT_EQ(Read(4), "text");
  char byte;
  const iovec piece{&byte, 1};
  EXPECT_EQ(stream_->Read(&piece, 1, 0), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_FALSE(stream_->has_pending());
  // A part of a record is nothing to be read either.
  const std::string record = PeerSeals(Kind::kData, "more");
  PeerSends(record.substr(0, 12));
  EXPECT_EQ(stream_->Read(&piece, 1, 0), -1);
  EXPECT_FALSE(stream_->has_pending());
  PeerSends(record.substr(12));
  EXPECT_EQ(Read(4), "more");
}

TEST_P(TlsKernelStreamTest, PaddingIsTakenOff) {
  // What stands in the place of the content type is a zero: the type is before it.
  PeerSends(PeerSeals(Kind{0}, std::string("abc\x17\0\0\0", 7)));
  EXPECT_EQ(Read(3), "abc");
}

// --- keys ----------------------------------------------------------------------------------------

TEST_P(TlsKernelStreamTest, AKeyIsReplacedBeforeItIsUsedUp) {
  Connect(TlsRole::kClient, /*records_per_key=*/4);
  int updates = 0;
  for (int i = 0; i < 30; ++i) {
    const std::string text = StrCat("record ", i);
    ASSERT_EQ(WriteTo(stream_.get(), text), static_cast<ssize_t>(text.size()));
    EXPECT_LT(RecordsMade(), 4u);
    EXPECT_EQ(PeerHearsData(text.size(), &updates), text);
  }
  EXPECT_EQ(updates, 9) << "three records with a key, and its update";
}

TEST_P(TlsKernelStreamTest, ALargeWriteEndsWithItsKey) {
  Connect(TlsRole::kClient, /*records_per_key=*/3);
  const std::string sent = Noise(200'000);
  EXPECT_EQ(WriteTo(stream_.get(), sent), 2 * 16384);
  int updates = 0;
  EXPECT_TRUE(PeerHearsData(2 * 16384, &updates) == sent.substr(0, 2 * 16384));
  EXPECT_EQ(WriteTo(stream_.get(), sent), 2 * 16384);
  EXPECT_TRUE(PeerHearsData(2 * 16384, &updates) == sent.substr(0, 2 * 16384));
  EXPECT_EQ(updates, 1);
}

TEST_P(TlsKernelStreamTest, ThePeersNextKeyIsTaken) {
  for (int i = 0; i < 10; ++i) {
    const std::string text = StrCat("key ", i);
    // All of it at once, and the reader stops at the update.
    PeerSends(
        {PeerSeals(Kind::kData, "old "), PeerSealsUpdate(false), PeerSeals(Kind::kData, text)});
    EXPECT_EQ(Read(4 + text.size(), i % 2 == 0 ? 0 : ~size_t{0}), "old " + text);
  }
  // Nobody has asked for ours.
  ASSERT_EQ(WriteTo(stream_.get(), "same key"), 8);
  EXPECT_EQ(PeerHears().content, "same key");
}

TEST_P(TlsKernelStreamTest, AKeyThatIsAskedForIsGivenBeforeWhatFollows) {
  for (int i = 0; i < 3; ++i) {
    PeerSends({PeerSealsUpdate(true), PeerSeals(Kind::kData, "x")});
    EXPECT_EQ(Read(1), "x");
    ASSERT_EQ(WriteTo(stream_.get(), "behind it"), 9);
    const Heard update = PeerHears();
    EXPECT_EQ(update.kind, Kind::kHandshake);
    EXPECT_EQ(update.said, Message::kIgnored) << "it asks for nothing";
    EXPECT_EQ(PeerHears().content, "behind it");
  }
}

TEST_P(TlsKernelStreamTest, APeerThatKeepsItsKeyTooLongIsAskedForTheNext) {
  Connect(TlsRole::kClient, /*records_per_key=*/4);
  for (int i = 0; i < 12; ++i) {
    PeerSays("1234");
    ASSERT_EQ(Read(4), "1234");
  }
  const Heard asks = PeerHears();
  EXPECT_EQ(asks.said, Message::kKeyUpdateRequested);
  PeerSends(PeerSealsUpdate(false));
  PeerSays("next");
  EXPECT_EQ(Read(4), "next");
  // It has asked once.
  ASSERT_EQ(WriteTo(stream_.get(), "text"), 4);
  EXPECT_EQ(PeerHears().content, "text");
}

TEST_P(TlsKernelStreamTest, AnUpdateIsReadThroughAReaderOfOneByte) {
  for (const size_t seen_bytes : {size_t{0}, ~size_t{0}}) {
    PeerSends({PeerSealsUpdate(false), PeerSeals(Kind::kData, "ab")});
    char byte = 0;
    ASSERT_EQ(ReadOnce(&byte, 1, seen_bytes), 1);
    EXPECT_EQ(byte, 'a');
    EXPECT_EQ(Read(1, seen_bytes), "b");
  }
}

// A socket without room in the midst of it all: the update waits, and nothing leaves before it.
TEST_P(TlsKernelStreamTest, AFullSocketKeepsTheOrderOfKeysAndData) {
  MakeTcpPair(&socket_, &peer_socket_);
  const int small = 4096;
  ASSERT_EQ(::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
  ASSERT_EQ(::setsockopt(peer_socket_.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
  Begin(TlsRole::kClient, /*records_per_key=*/2);
  const std::string sent = Noise(600'000);
  size_t at = 0;
  int full = 0;
  int updates_in_wait = 0;
  std::string heard;
  while (heard.size() < sent.size()) {
    while (at < sent.size()) {
      const ssize_t taken = WriteTo(stream_.get(), std::string_view(sent).substr(at, 5000));
      if (taken < 0) break;
      at += static_cast<size_t>(taken);
    }
    ASSERT_FALSE(stream_->failed()) << stream_->error();
    if (at < sent.size()) ++full;
    if (stream_->unsent() > 0) ++updates_in_wait;
    Heard next = PeerHears();
    ASSERT_NE(next.kind, Kind::kWrong) << heard.size() << " of " << at;
    if (next.kind == Kind::kData) heard += next.content;
  }
  EXPECT_GT(full, 0);
  EXPECT_GT(updates_in_wait, 0);
  EXPECT_TRUE(heard == sent);
}

// Its peer would have to read what it does not, and holds no more of this side's memory for it.
TEST_P(TlsKernelStreamTest, UpdatesThatAreAskedForOfAFullSocketAreOne) {
  while (WriteTo(stream_.get(), Noise(16384)) > 0) {
  }
  ASSERT_EQ(errno, EAGAIN);
  for (int i = 0; i < 10; ++i) {
    PeerSends(PeerSealsUpdate(true));
    EXPECT_EQ(Read(0), "");
    char byte;
    ASSERT_EQ(ReadOnce(&byte, 1), -1);
    ASSERT_EQ(errno, EAGAIN);
    EXPECT_EQ(stream_->unsent(), TlsRecords::kKeyUpdateBytes);
  }
  int updates = 0;
  while (updates == 0) {
    const Heard heard = PeerHears();
    ASSERT_NE(heard.kind, Kind::kWrong);
    if (heard.kind == Kind::kHandshake) ++updates;
    stream_->Flush();
  }
  EXPECT_EQ(stream_->unsent(), 0u);
  ASSERT_EQ(WriteTo(stream_.get(), "next"), 4);
  EXPECT_EQ(PeerHears().content, "next");
}

// --- the reader's memory -------------------------------------------------------------------------

TEST_P(TlsKernelStreamTest, WhatDoesNotOpenIsNotInTheReadersMemory) {
  for (const size_t seen_bytes : {size_t{0}, ~size_t{0}}) {
    Connect();
    std::string record = PeerSeals(Kind::kData, Noise(5000));
    record[3000] = static_cast<char>(record[3000] ^ 1);
    PeerSends(record);
    std::string room(8000, 'u');
    ASSERT_EQ(ReadOnce(room.data(), room.size(), seen_bytes), -1);
    EXPECT_EQ(room, std::string(8000, 'u'));
    EXPECT_TRUE(stream_->failed());
  }
}

TEST_P(TlsKernelStreamTest, MessagesOfTlsDoNotPassThroughMemoryThatOthersSee) {
  PeerSends(PeerSealsUpdate(false));
  std::string room(100, 'u');
  ASSERT_EQ(ReadOnce(room.data(), room.size(), /*seen_bytes=*/1), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(room, std::string(100, 'u'));
}

// It is by this that the kernel would open a record in the reader's memory, before it has checked.
TEST_P(TlsKernelStreamTest, TheKernelIsNotToldToExpectRecordsWithoutPadding) {
  int value = 1;
  socklen_t bytes = sizeof(value);
  ASSERT_EQ(::getsockopt(socket_.get(), SOL_TLS, TLS_RX_EXPECT_NO_PAD, &value, &bytes), 0);
  EXPECT_EQ(value, 0);
}

// --- ends ----------------------------------------------------------------------------------------

TEST_P(TlsKernelStreamTest, AnEndInGoodOrderIsZero) {
  PeerSays("last words");
  PeerSends(PeerSeals(Kind::kAlert, std::string("\1\0", 2)));
  EXPECT_EQ(Read(100), "last words");
  EXPECT_FALSE(stream_->failed());
  EXPECT_TRUE(stream_->has_pending());
  char byte;
  const iovec piece{&byte, 1};
  EXPECT_EQ(stream_->Read(&piece, 1, 0), 0);
  // The other direction goes on.
  EXPECT_EQ(WriteTo(stream_.get(), "still here"), 10);
  EXPECT_EQ(PeerHears().content, "still here");
}

TEST_P(TlsKernelStreamTest, AnEndIsToldAndNothingFollowsIt) {
  ASSERT_EQ(WriteTo(stream_.get(), "last words"), 10);
  stream_->End();
  stream_->End();
  EXPECT_EQ(PeerHears().content, "last words");
  EXPECT_EQ(PeerHears().said, Message::kEnd);
  // Nobody would listen to an update.
  PeerSends({PeerSealsUpdate(true), PeerSeals(Kind::kData, "x")});
  EXPECT_EQ(Read(1), "x");
  stream_->Flush();
  ASSERT_EQ(::shutdown(socket_.get(), SHUT_WR), 0);
  EXPECT_EQ(PeerHears().kind, Kind::kWrong) << "the end of the socket is next";
  EXPECT_EQ(WriteTo(stream_.get(), "too late"), -1);
  EXPECT_EQ(errno, EPROTO);
}

// Of a full socket that is closed the kernel forgets records that it has taken, the end among them:
// the peer finds the stream cut, and takes nothing for the end that is not.
TEST_P(TlsKernelStreamTest, AnEndIsHeardBehindAllDataOrNotAtAll) {
  const int small = 4096;
  int ends[2] = {};
  for (const size_t piece : {3000, 20'000}) {
    size_t taken = 0;
    for (size_t bytes = 1000; taken + 1500 >= bytes; bytes += 1500) {
      MakeTcpPair(&socket_, &peer_socket_);
      ASSERT_EQ(::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
      ASSERT_EQ(::setsockopt(peer_socket_.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
      Begin(TlsRole::kClient, /*records_per_key=*/1000);
      const std::string sent = Noise(bytes);
      taken = 0;
      for (ssize_t count = 1; taken < bytes && count > 0;) {
        count = WriteTo(stream_.get(), std::string_view(sent).substr(taken, piece));
        if (count > 0) taken += static_cast<size_t>(count);
      }
      stream_->End();
      stream_.reset();
      socket_.Reset();
      const std::string heard = PeerHearsData(taken);
      EXPECT_TRUE(heard == sent.substr(0, heard.size())) << taken << " of " << bytes;
      const bool ended = PeerHears().said == Message::kEnd;
      if (ended) EXPECT_EQ(heard.size(), taken);
      ++ends[ended];
    }
  }
  EXPECT_GT(ends[true], 0);
  EXPECT_GT(ends[false], 0);
}

// Anybody on the way can end a TCP stream; what was sent before would look complete.
TEST_P(TlsKernelStreamTest, ACutStreamIsAnError) {
  for (const bool half : {false, true}) {
    Connect();
    PeerSays("half of it");
    if (half) PeerSends(PeerSeals(Kind::kData, "and the rest").substr(0, 20));
    ASSERT_EQ(::shutdown(peer_socket_.get(), SHUT_WR), 0);
    EXPECT_EQ(Read(10), "half of it");
    ExpectFailed(absl::StatusCode::kUnavailable, "cut");
  }
}

TEST_P(TlsKernelStreamTest, ABrokenSocketIsUnavailable) {
  const linger at_once = {1, 0};
  ASSERT_EQ(::setsockopt(peer_socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
  peer_socket_.Reset();
  ASSERT_TRUE(AwaitInput(socket_.get()));
  EXPECT_EQ(WriteTo(stream_.get(), "text"), 4) << "what is read says what has happened";
  ExpectFailed(absl::StatusCode::kUnavailable, "TLS:");
}

TEST_P(TlsKernelStreamTest, AnAlertOfThePeersSaysWhyItHasGivenUp) {
  PeerSends(PeerSeals(Kind::kAlert, "\2\x14"));
  ExpectFailed(absl::StatusCode::kUnauthenticated, "the peer refuses");
}

// --- peers that break the rules ------------------------------------------------------------------

TEST_P(TlsKernelStreamTest, WhatCameBeforeAWrongRecordIsRead) {
  PeerSays("before it");
  PeerSends(std::string(30, 'w'));
  EXPECT_EQ(Read(9), "before it");
  ExpectFailed(absl::StatusCode::kDataLoss, "a record is wrong");
}

TEST_P(TlsKernelStreamTest, WhatDoesNotOpenIsTold) {
  std::string record = PeerSeals(Kind::kData, "0123456789");
  record[8] = static_cast<char>(record[8] ^ 1);
  PeerSends(record);
  ExpectFailed(absl::StatusCode::kDataLoss, "a record is wrong: it does not open");
  ExpectAlert(Alert::kBadRecordMac);
}

TEST_P(TlsKernelStreamTest, RecordsOpenOnceAndInTheirOrder) {
  const std::string first = PeerSeals(Kind::kData, "first");
  PeerSends(first);
  EXPECT_EQ(Read(5), "first");
  PeerSends(first);
  ExpectFailed(absl::StatusCode::kDataLoss, "it does not open");
  Connect();
  (void)PeerSeals(Kind::kData, "left out");
  PeerSays("behind it");
  ExpectFailed(absl::StatusCode::kDataLoss, "it does not open");
}

TEST_P(TlsKernelStreamTest, WrongHeadersAreRefused) {
  const struct {
    std::string_view header;
    const char* words;
    Alert alert;
  } kWrong[] = {
      {"\x17\x03\x03\x40\x12", "longer than 2^14", Alert::kRecordOverflow},
      {std::string_view("\x17\x03\x03\x00\x05", 5), "does not open", Alert::kBadRecordMac},
  };
  for (const auto& wrong : kWrong) {
    Connect();
    PeerSends(std::string(wrong.header) + std::string(20'000, '\0'));
    ExpectFailed(absl::StatusCode::kDataLoss, wrong.words);
    ExpectAlert(wrong.alert);
  }
  // Of another version, and no TLS at all: which error it is depends on the kernel.
  for (const std::string_view other : {"\x17\x03\x01\x40\x12", "GET / HTTP/1.1"}) {
    Connect();
    PeerSends(std::string(other) + std::string(20'000, '\0'));
    ExpectFailed(absl::StatusCode::kDataLoss, "a record is wrong");
    EXPECT_EQ(PeerHears().kind, Kind::kAlert);
  }
}

// The kernel takes it for what it has to be (RFC 8446, 5.2), when it checks the record.
TEST_P(TlsKernelStreamTest, TheFirstByteOfARecordIsPassedOver) {
  std::string record = PeerSeals(Kind::kData, "0123456789");
  record[0] = static_cast<char>(record[0] ^ 0x10);
  PeerSends(record);
  EXPECT_EQ(Read(10), "0123456789");
}

TEST_P(TlsKernelStreamTest, RecordsOfUnknownTypesAndWrongMessagesAreRefused) {
  for (const int type : {1, 20, 24, 255}) {
    Connect();
    PeerSends(PeerSeals(static_cast<Kind>(type), "xx"));
    ExpectFailed(absl::StatusCode::kDataLoss, "content type is unknown");
    ExpectAlert(Alert::kUnexpectedMessage);
  }
  const struct {
    Kind kind;
    std::string_view content;
    const char* words;
  } kWrong[] = {
      {Kind::kAlert, "", "an alert has two bytes"},
      {Kind::kAlert, "\1", "an alert has two bytes"},
      {Kind::kHandshake, "", "a handshake record is empty"},
      {Kind::kHandshake, std::string_view("\x18\0\0\1\2", 5), "asks for something unknown"},
      {Kind::kHandshake, std::string_view("\x18\0\0\1", 4), "cut over two records"},
      {Kind::kHandshake, std::string_view("\1\0\0\0", 4), "has come behind it"},
  };
  for (const auto& wrong : kWrong) {
    Connect();
    PeerSends(PeerSeals(wrong.kind, wrong.content));
    ExpectFailed(absl::StatusCode::kDataLoss, wrong.words);
    EXPECT_EQ(PeerHears().kind, Kind::kAlert);
  }
}

TEST_P(TlsKernelStreamTest, TicketsAreIgnoredByAClientAndRefusedByAServer) {
  std::string ticket = std::string("\4\0\x13\x88", 4) + Noise(5000);
  PeerSends(PeerSeals(Kind::kHandshake, ticket));
  PeerSays("behind it");
  char byte;
  ASSERT_EQ(ReadOnce(&byte, 1, 0), 1) << "though it has no room for a ticket";
  EXPECT_EQ(byte, 'b');
  EXPECT_EQ(Read(8), "ehind it");
  Connect(TlsRole::kServer);
  PeerSends(PeerSeals(Kind::kHandshake, ticket));
  ExpectFailed(absl::StatusCode::kDataLoss, "a message of the handshake has come behind it");
}

// A ticket and an update in one record are a key update that the kernel does not see by itself.
TEST_P(TlsKernelStreamTest, AnUpdateBehindATicketIsTaken) {
  const std::string both = std::string("\4\0\0\5tttt", 8) + "t" + std::string("\x18\0\0\1\0", 5);
  const std::string last = PeerSeals(Kind::kHandshake, both);
  (void)PeerSealsUpdate(false);  // the peer goes on with its next key, and does not say so again
  PeerSends(last);
  ASSERT_TRUE(AwaitInput(socket_.get()));
  char byte;
  const iovec piece{&byte, 1};
  EXPECT_EQ(stream_->Read(&piece, 1, 0), -1);
  EXPECT_EQ(errno, EAGAIN);
  PeerSays("next key");
  EXPECT_EQ(Read(8), "next key");
}

TEST_P(TlsKernelStreamTest, APeerThatFloodsTheStreamIsEnded) {
  for (const bool updates : {true, false}) {
    Connect();
    std::string flood;
    for (uint64_t i = 0; i <= TlsOwnMessages::kMost; ++i) {
      flood += updates ? PeerSealsUpdate(i % 2 == 0) : PeerSeals(Kind::kAlert, "\1\x5a");
    }
    PeerSends(flood);
    ExpectFailed(absl::StatusCode::kDataLoss, "floods");
  }
}

TEST_P(TlsKernelStreamTest, RecordsWithoutDataAreNoEndAndTooManyAreAFlood) {
  PeerSends({PeerSeals(Kind::kData, ""), PeerSealsUpdate(false), PeerSeals(Kind::kData, ""),
             PeerSeals(Kind::kData, "data")});
  EXPECT_EQ(Read(4), "data");
  PeerSends(PeerSeals(Kind::kData, ""));
  ASSERT_EQ(::shutdown(peer_socket_.get(), SHUT_WR), 0);
  ExpectFailed(absl::StatusCode::kUnavailable, "cut");
  // As far as the kernel tells of them: each is before something else.
  Connect();
  std::string flood;
  for (uint64_t i = 0; i <= TlsOwnMessages::kMost / 2; ++i) {
    flood += PeerSeals(Kind::kData, "");
    flood += PeerSeals(Kind::kAlert, "\1\x5a");
  }
  PeerSends(flood);
  ExpectFailed(absl::StatusCode::kDataLoss, "floods");
}

TEST_P(TlsKernelStreamTest, AReadIsBoundedByWhatItAsksFor) {
  std::string flood;
  for (int i = 0; i < 500; ++i) flood += PeerSeals(Kind::kData, "x");
  PeerSends(flood);
  char bytes[100];
  ASSERT_EQ(ReadOnce(bytes, sizeof(bytes), 0), 100);
  EXPECT_EQ(Read(400), std::string(400, 'x'));
}

// --- whole streams -------------------------------------------------------------------------------

// A stream of ours over TCP, or over a Unix socket, which the kernel's TLS does not take.
struct Side {
  explicit Side(TlsRole role, bool by_kernel) : by_kernel(by_kernel) {
    credentials = std::move(TlsCredentials::Create(role, WithPsk())).value();
  }
  void Start() {
    stream = std::make_unique<TlsStream>(socket.get());
    ASSERT_TRUE(stream->Start(credentials.get(), &scratch, 0, "localhost").ok());
    if (by_kernel) stream->UseKernel();
  }
  std::string Read(size_t bytes) { return ReadFrom(stream.get(), socket.get(), bytes); }
  // The socket, while more of the handshake is to come by it.
  int awaited() const {
    return stream->state() == TlsStream::State::kHandshake ? socket.get() : -1;
  }

  const bool by_kernel;
  TlsScratch scratch;
  std::unique_ptr<TlsCredentials> credentials;
  Descriptor socket;
  std::unique_ptr<TlsStream> stream;
};

void Shake(Side* client, Side* server) {
  client->stream->Flush();
  while (client->awaited() >= 0 || server->awaited() >= 0) {
    ASSERT_TRUE(AwaitInput(client->awaited(), server->awaited()));
    client->stream->Flush();
    server->stream->Flush();
  }
  ASSERT_EQ(client->stream->state(), TlsStream::State::kUp) << client->stream->error();
  ASSERT_EQ(server->stream->state(), TlsStream::State::kUp) << server->stream->error();
}

void ExpectToCarry(Side* from, Side* to) {
  const std::string sent = Noise(700'000);
  std::string received;
  size_t at = 0;
  while (received.size() < sent.size()) {
    const ssize_t taken = WriteTo(from->stream.get(), std::string_view(sent).substr(at, 300'000));
    if (taken > 0) at += static_cast<size_t>(taken);
    from->stream->Flush();
    std::string room(20'000, '\0');
    const iovec piece{room.data(), room.size()};
    const ssize_t count = to->stream->Read(&piece, 1, received.size() % 2 == 0 ? 0 : 1);
    if (count > 0) received.append(room, 0, static_cast<size_t>(count));
    ASSERT_TRUE(to->stream->error().ok()) << to->stream->error();
    ASSERT_TRUE(from->stream->error().ok()) << from->stream->error();
    if (taken > 0 || count > 0 || to->stream->has_pending()) continue;
    const bool sends = at < sent.size() || from->stream->unsent() > 0;
    ASSERT_TRUE(
        AwaitAny({to->socket.get(), POLLIN, 0}, {sends ? from->socket.get() : -1, POLLOUT, 0}))
        << received.size() << " of " << at << " bytes have come";
  }
  EXPECT_TRUE(received == sent);
  from->stream->End();
  EXPECT_EQ(to->Read(1), "");
  EXPECT_TRUE(to->stream->error().ok()) << to->stream->error();
}

// Whoever makes the records, here and there: on the wire it is the same TLS.
TEST(TlsStreamByKernelTest, CarriesWithAnyPeerOfOurs) {
  for (const auto& [client_by, server_by] :
       {std::pair(true, true), std::pair(true, false), std::pair(false, true)}) {
    Side client(TlsRole::kClient, client_by);
    Side server(TlsRole::kServer, server_by);
    MakeTcpPair(&client.socket, &server.socket);
    client.Start();
    server.Start();
    ASSERT_NO_FATAL_FAILURE(Shake(&client, &server));
    const absl::Status offer = AskKernelForTls();
    for (const Side* side : {&client, &server}) {
      EXPECT_EQ(side->stream->records_by(),
                side->by_kernel && offer.ok() ? RecordsBy::kKernel : RecordsBy::kWeft);
      EXPECT_EQ(side->stream->why_not_kernel(), side->by_kernel ? offer.message() : "");
    }
    ExpectToCarry(&client, &server);
    ExpectToCarry(&server, &client);
  }
}

TEST(TlsStreamByKernelTest, WhatTheKernelDoesNotTakeHasOwnRecords) {
  Side client(TlsRole::kClient, true);
  Side server(TlsRole::kServer, true);
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  client.socket.Reset(fds[0]);
  server.socket.Reset(fds[1]);
  client.Start();
  server.Start();
  ASSERT_NO_FATAL_FAILURE(Shake(&client, &server));
  for (const Side* side : {&client, &server}) {
    EXPECT_EQ(side->stream->records_by(), RecordsBy::kWeft);
    EXPECT_NE(side->stream->why_not_kernel(), "");
  }
  ExpectToCarry(&client, &server);
  ExpectToCarry(&server, &client);
}

// The end of the client's handshake and what follows it come together: the kernel is to find it.
TEST(TlsStreamByKernelTest, RecordsRightBehindTheHandshakeAreNotLost) {
  Side client(TlsRole::kClient, false);
  Side server(TlsRole::kServer, true);
  MakeTcpPair(&client.socket, &server.socket);
  client.Start();
  server.Start();
  client.stream->Flush();
  ASSERT_TRUE(AwaitInput(server.socket.get()));
  server.stream->Flush();
  ASSERT_TRUE(AwaitInput(client.socket.get()));
  ASSERT_EQ(WriteTo(client.stream.get(), "at once"), 7);  // behind its Finished
  ASSERT_EQ(server.stream->state(), TlsStream::State::kHandshake);
  EXPECT_EQ(server.Read(7), "at once");
  EXPECT_EQ(server.stream->records_by(),
            AskKernelForTls().ok() ? RecordsBy::kKernel : RecordsBy::kWeft);
}

// One byte at a time is every split of the handshake.
TEST(TlsStreamByKernelTest, HandshakeArrivesByteByByte) {
  Side client(TlsRole::kClient, true);
  Side server(TlsRole::kServer, true);
  Descriptor client_wire, server_wire;
  MakeTcpPair(&client.socket, &client_wire);
  MakeTcpPair(&server.socket, &server_wire);
  client.Start();
  server.Start();
  client.stream->Flush();
  for (int carried = 0; client.stream->state() == TlsStream::State::kHandshake ||
                        server.stream->state() == TlsStream::State::kHandshake;
       ++carried) {
    ASSERT_LT(carried, 10'000);
    ASSERT_TRUE(AwaitInput(client_wire.get(), server_wire.get()));
    for (const auto& [from, to, reader] :
         {std::tuple(client_wire.get(), server_wire.get(), &server),
          std::tuple(server_wire.get(), client_wire.get(), &client)}) {
      char byte;
      if (::recv(from, &byte, 1, 0) != 1) continue;
      ASSERT_EQ(::send(to, &byte, 1, 0), 1);
      ASSERT_TRUE(AwaitInput(reader->socket.get()));
      reader->stream->Flush();
    }
  }
  EXPECT_EQ(client.stream->state(), TlsStream::State::kUp) << client.stream->error();
  EXPECT_EQ(server.stream->state(), TlsStream::State::kUp) << server.stream->error();
}

// --- a peer that has nothing of ours -------------------------------------------------------------

class TlsKernelStreamOpensslTest : public ::testing::TestWithParam<TlsRole> {
 protected:
  // A stream of ours in the role, and OpenSSL in the other.
  void Meet(size_t tickets = 0) {
    if (!AskKernelForTls().ok()) GTEST_SKIP() << AskKernelForTls();
    const TlsRole other = GetParam() == TlsRole::kClient ? TlsRole::kServer : TlsRole::kClient;
    MakeTcpPair(&side_.socket, &peer_socket_);
    side_.Start();
    peer_ = std::make_unique<OpensslPeer>(other, peer_socket_.get(), WithPsk().psk_name,
                                          WithPsk().psk_secret, tickets);
    side_.stream->Flush();
    for (bool peer_is_up = peer_->Shake(); !peer_is_up || side_.awaited() >= 0;) {
      ASSERT_TRUE(AwaitInput(side_.awaited(), peer_is_up ? -1 : peer_socket_.get()));
      side_.stream->Flush();
      peer_is_up = peer_->Shake();
    }
    ASSERT_EQ(side_.stream->state(), TlsStream::State::kUp) << side_.stream->error();
    ASSERT_EQ(side_.stream->records_by(), RecordsBy::kKernel) << side_.stream->why_not_kernel();
  }
  std::string PeerReads(size_t bytes) {
    std::string all;
    while (all.size() < bytes && AwaitInput(peer_socket_.get())) {
      all += peer_->Read();
      if (peer_->error() != SSL_ERROR_WANT_READ) break;
    }
    return all;
  }
  void ExpectBothWays(const std::string& text) {
    ASSERT_EQ(WriteTo(side_.stream.get(), text), static_cast<ssize_t>(text.size()));
    EXPECT_EQ(PeerReads(text.size()), text);
    ASSERT_TRUE(peer_->Write(text));
    EXPECT_EQ(side_.Read(text.size()), text);
  }

  Side side_{GetParam(), true};
  Descriptor peer_socket_;
  std::unique_ptr<OpensslPeer> peer_;
};

INSTANTIATE_TEST_SUITE_P(Roles, TlsKernelStreamOpensslTest,
                         ::testing::Values(TlsRole::kClient, TlsRole::kServer),
                         [](const auto& info) {
                           return std::string(info.param == TlsRole::kClient ? "Client" : "Server");
                         });

TEST_P(TlsKernelStreamOpensslTest, UnderstandsItAndItsKeyUpdatesAndItsEnd) {
  ASSERT_NO_FATAL_FAILURE(Meet());
  if (IsSkipped()) return;
  ExpectBothWays("hello");
  ExpectBothWays(Noise(60'000));
  for (const int kind : {SSL_KEY_UPDATE_NOT_REQUESTED, SSL_KEY_UPDATE_REQUESTED}) {
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(SSL_key_update(peer_->ssl(), kind), 1);
      ASSERT_TRUE(peer_->Write("with another key"));
      EXPECT_EQ(side_.Read(16), "with another key");
      ExpectBothWays(StrCat("key ", i));
    }
  }
  side_.stream->End();
  EXPECT_EQ(PeerReads(1), "");
  EXPECT_EQ(peer_->error(), SSL_ERROR_ZERO_RETURN);
  ASSERT_TRUE(peer_->Write("last words"));
  SSL_shutdown(peer_->ssl());
  EXPECT_EQ(side_.Read(100), "last words");
  EXPECT_TRUE(side_.stream->error().ok()) << side_.stream->error();
}

TEST_P(TlsKernelStreamOpensslTest, TicketsOfItsAreIgnored) {
  ASSERT_NO_FATAL_FAILURE(Meet(/*tickets=*/3));
  if (IsSkipped()) return;
  ExpectBothWays("behind the tickets");
}

}  // namespace
}  // namespace weft
