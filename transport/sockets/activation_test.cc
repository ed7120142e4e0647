// Sockets that a service manager has opened: what its variables say, and what becomes of them.
#include "transport/sockets/activation.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "transport/sockets/address.h"
#include "transport/sockets/socket.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr pid_t kSelf = 77;

std::string ErrorOf(const absl::Status& status) { return std::string(ToStd(status.message())); }

// --- the variables -------------------------------------------------------------------------------

TEST(ReadActivationTest, SocketsHaveTheirNames) {
  const auto sockets = ReadActivation(kSelf, "77", "2", "kv:admin");
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  ASSERT_EQ(sockets->size(), 2u);
  EXPECT_EQ((*sockets)[0].descriptor, 3);
  EXPECT_EQ((*sockets)[0].name, "kv");
  EXPECT_EQ((*sockets)[1].descriptor, 4);
  EXPECT_EQ((*sockets)[1].name, "admin");
}

TEST(ReadActivationTest, NamesMayBeMissingOrEmpty) {
  const auto without = ReadActivation(kSelf, "77", "2", nullptr);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->size(), 2u);
  EXPECT_EQ((*without)[1].name, "");
  const auto empty = ReadActivation(kSelf, "77", "3", "a::");
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ((*empty)[0].name, "a");
  EXPECT_EQ((*empty)[2].name, "");
}

// systemd's FileDescriptorName= may have every printable character but ':', and is passed on
// without escapes.
TEST(ReadActivationTest, NamesAreTakenAsTheyStand) {
  const auto sockets = ReadActivation(kSelf, "77", "3", "a b:c\\x2dd:%3A\"e\"");
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  EXPECT_EQ((*sockets)[0].name, "a b");
  EXPECT_EQ((*sockets)[1].name, "c\\x2dd");
  EXPECT_EQ((*sockets)[2].name, "%3A\"e\"");
  EXPECT_EQ(FindActivated(*sockets, "systemd:c\\x2dd").value(), 1u);
}

TEST(ReadActivationTest, WithoutTheVariablesOrWithNoneThereIsNothing) {
  for (const char* const count : {static_cast<const char*>(nullptr), "0"}) {
    const auto sockets = ReadActivation(kSelf, "77", count, "");
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    EXPECT_TRUE(sockets->empty());
  }
}

TEST(ReadActivationTest, AnotherProcesssSocketsAreNotTaken) {
  const absl::Status status = ReadActivation(kSelf, "78", "1", nullptr).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(ErrorOf(status), HasSubstr("LISTEN_PID is 78, and this is process 77"));
}

TEST(ReadActivationTest, WhatMakesNoSenseIsRefusedByName) {
  for (const char* const number : {"", "-1", "3x", " 3", "99999999999999999999", "0x3"}) {
    EXPECT_THAT(ErrorOf(ReadActivation(kSelf, number, "1", nullptr).status()),
                HasSubstr("LISTEN_PID is \""))
        << number;
    EXPECT_THAT(ErrorOf(ReadActivation(kSelf, "77", number, nullptr).status()),
                HasSubstr("LISTEN_FDS is \""))
        << number;
  }
  EXPECT_THAT(ErrorOf(ReadActivation(kSelf, "77", "513", nullptr).status()),
              HasSubstr("LISTEN_FDS is 513; at most 512"));
  EXPECT_THAT(ErrorOf(ReadActivation(kSelf, nullptr, "1", nullptr).status()),
              HasSubstr("without LISTEN_PID"));
  for (const char* const names : {"a", "", "a:b:c", "::"}) {
    EXPECT_THAT(ErrorOf(ReadActivation(kSelf, "77", "2", names).status()),
                HasSubstr("LISTEN_FDNAMES does not name 2 sockets"))
        << names;
  }
}

// --- which one -----------------------------------------------------------------------------------

TEST(FindActivatedTest, ANameOrNoneSaysWhich) {
  const std::vector<ActivatedSocket> two = {{3, "kv"}, {4, "admin"}};
  EXPECT_EQ(FindActivated(two, "systemd:kv").value(), 0u);
  EXPECT_EQ(FindActivated(two, "systemd:admin").value(), 1u);
  EXPECT_EQ(FindActivated({{3, "kv"}}, "systemd:").value(), 0u);
  EXPECT_EQ(FindActivated({{3, ""}}, "systemd:").value(), 0u);
}

TEST(FindActivatedTest, WhatIsNotThereOrNotClearIsSaidInWords) {
  const std::vector<ActivatedSocket> two = {{3, "kv"}, {4, "admin"}};
  EXPECT_THAT(ErrorOf(FindActivated({}, "systemd:kv").status()), HasSubstr("LISTEN_FDS"));
  EXPECT_THAT(ErrorOf(FindActivated(two, "systemd:other").status()),
              HasSubstr("no socket of this name, but \"kv\", \"admin\""));
  EXPECT_THAT(ErrorOf(FindActivated(two, "systemd:").status()), HasSubstr("more than one"));
  EXPECT_THAT(ErrorOf(FindActivated({{3, "kv"}, {4, "kv"}}, "systemd:kv").status()),
              HasSubstr("more than one"));
  EXPECT_THAT(ErrorOf(FindActivated({{-1, "kv"}}, "systemd:kv").status()),
              HasSubstr("taken before"));
}

TEST(IsActivatedTest, OtherAddressesAreNot) {
  EXPECT_TRUE(IsActivated("systemd:"));
  EXPECT_TRUE(IsActivated("systemd:kv"));
  for (const char* const address : {"", "systemd", "localhost:4711", "unix:/systemd:"}) {
    EXPECT_FALSE(IsActivated(address)) << address;
  }
}

// --- a process that was given some ---------------------------------------------------------------

// Runs `act` in a child that has `sockets` at 3, 4, ... and variables that say so; it says by what
// it returns whether all was well.
template <class Act>
void InActivatedChild(const std::vector<int>& sockets, const char* names, Act act) {
  const pid_t child = ::fork();
  if (child == 0) {
    // Out of the way first.
    std::vector<int> copies;
    for (const int socket : sockets) copies.push_back(::fcntl(socket, F_DUPFD, 100));
    for (size_t i = 0; i < copies.size(); ++i) {
      ::dup2(copies[i], kFirstActivated + static_cast<int>(i));
      ::close(copies[i]);
    }
    setenv("LISTEN_PID", StrCat(::getpid()).c_str(), 1);
    setenv("LISTEN_FDS", StrCat(sockets.size()).c_str(), 1);
    setenv("LISTEN_FDNAMES", names, 1);
    ::_exit(act() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

bool Says(const absl::Status& status, std::string_view part) {
  const bool says = !status.ok() && ErrorOf(status).find(part) != std::string::npos;
  if (!says) std::fprintf(stderr, "\"%s\" lacks the words\n", status.ToString().c_str());
  return says;
}

Descriptor ListeningSocket() {
  absl::StatusOr<Descriptor> socket =
      ListenInternet(Resolve(*ParseServerAddress("127.0.0.1:0"))->front());
  EXPECT_TRUE(socket.ok()) << socket.status();
  return *std::move(socket);
}

TEST(TakeActivatedTest, EachIsTakenOnceAndNothingIsLeftForOtherPrograms) {
  const Descriptor kv = ListeningSocket();
  const Descriptor admin = ListeningSocket();
  const std::string address = LocalAddress(admin.get())->text();
  InActivatedChild({kv.get(), admin.get()}, "kv:admin", [&] {
    const absl::StatusOr<Descriptor> taken = TakeActivated("systemd:admin");
    if (!taken.ok() || LocalAddress(taken->get())->text() != address) return false;
    const bool is_hidden = (::fcntl(taken->get(), F_GETFD) & FD_CLOEXEC) != 0 &&
                           (::fcntl(kFirstActivated, F_GETFD) & FD_CLOEXEC) != 0 &&
                           getenv("LISTEN_PID") == nullptr && getenv("LISTEN_FDS") == nullptr &&
                           getenv("LISTEN_FDNAMES") == nullptr;
    const bool never_waits = (::fcntl(taken->get(), F_GETFL) & O_NONBLOCK) != 0;
    return is_hidden && never_waits &&
           Says(TakeActivated("systemd:admin").status(),
                "listen on systemd:admin: this socket was") &&
           TakeActivated("systemd:kv").ok();
  });
}

TEST(TakeActivatedTest, WhatDoesNotListenIsRefusedAndStays) {
  const Descriptor connected(::socket(AF_INET, SOCK_STREAM, 0));
  const Descriptor datagrams(::socket(AF_INET, SOCK_DGRAM, 0));
  const Descriptor file(::open("/dev/null", O_RDONLY));
  InActivatedChild({connected.get(), datagrams.get(), file.get()}, "stream:datagrams:file", [] {
    return Says(TakeActivated("systemd:stream").status(), "is no stream socket that listens") &&
           Says(TakeActivated("systemd:stream").status(), "is no stream socket that listens") &&
           Says(TakeActivated("systemd:datagrams").status(), "is no stream socket that listens") &&
           Says(TakeActivated("systemd:file").status(), "take descriptor 5 as a socket");
  });
}

TEST(TakeActivatedTest, OneThatIsNotOpenIsSaidToBeNone) {
  const Descriptor kv = ListeningSocket();
  InActivatedChild({kv.get()}, "kv:gone", [] {
    setenv("LISTEN_FDS", "2", 1);
    ::close(kFirstActivated + 1);  // something of the parent's
    return Says(TakeActivated("systemd:gone").status(), "take descriptor 4 as a socket") &&
           TakeActivated("systemd:kv").ok();
  });
}

TEST(TakeActivatedTest, AChildHasNothingOfItsParents) {
  const Descriptor kv = ListeningSocket();
  const Descriptor admin = ListeningSocket();
  InActivatedChild({kv.get(), admin.get()}, "kv:admin", [] {
    if (!TakeActivated("systemd:kv").ok()) return false;
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(Says(TakeActivated("systemd:admin").status(), "no socket (LISTEN_FDS") ? 0 : 1);
    }
    int status = -1;
    return ::waitpid(child, &status, 0) == child && status == 0;
  });
}

TEST(TakeActivatedTest, WithoutAServiceManagerThereIsNone) {
  EXPECT_THAT(
      ErrorOf(TakeActivated("systemd:kv").status()),
      HasSubstr("listen on systemd:kv: the service manager has given this process no socket"));
}

}  // namespace
}  // namespace weft
