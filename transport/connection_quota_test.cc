#include "transport/connection_quota.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>

#include "transport/identity.h"
#include "transport/path.h"

namespace weft {
namespace {

ListenOptions Limits(uint32_t all, uint32_t of_one) {
  ListenOptions options;
  options.max_connections = all;
  options.max_connections_of_one = of_one;
  return options;
}

bool HasRoom(const ListenOptions& options, uint32_t all, uint32_t of_client, size_t clients = 1) {
  const absl::Status room = CheckRoomForClient(options, all, of_client, clients);
  EXPECT_TRUE(room.ok() || absl::IsResourceExhausted(room)) << room;
  return room.ok();
}

TEST(ConnectionQuotaTest, OneClientHasAllButTheReserve) {
  const ListenOptions options;
  ASSERT_EQ(options.max_connections, 1024u);
  EXPECT_TRUE(HasRoom(options, 895, 895));
  EXPECT_FALSE(HasRoom(options, 896, 896));
}

TEST(ConnectionQuotaTest, TheReserveIsForThoseWhoHaveNone) {
  const ListenOptions options;
  EXPECT_TRUE(HasRoom(options, 896, 0));
  EXPECT_FALSE(HasRoom(options, 897, 1, /*clients=*/1023));
  EXPECT_TRUE(HasRoom(options, 1023, 0));
  EXPECT_FALSE(HasRoom(options, 1024, 0));
}

// One who always made more took each connection that another gave up for a moment, until that one
// had a single one left, and the reserve stood empty.
TEST(ConnectionQuotaTest, TheReserveIsForThoseWhoHaveLessThanTheirShare) {
  const ListenOptions options;
  EXPECT_TRUE(HasRoom(options, 896, 340, /*clients=*/2));
  EXPECT_FALSE(HasRoom(options, 896, 341, /*clients=*/2)) << "a third of 1,024";
  EXPECT_FALSE(HasRoom(options, 896, 556, /*clients=*/2));
}

TEST(ConnectionQuotaTest, OneClientHasNoMoreThanItsNumber) {
  const ListenOptions options = Limits(1024, 3);
  EXPECT_TRUE(HasRoom(options, 2, 2));
  EXPECT_FALSE(HasRoom(options, 3, 3));
  EXPECT_TRUE(HasRoom(options, 500, 0));
  EXPECT_FALSE(HasRoom(options, 900, 2, /*clients=*/500)) << "the reserve is there as well";
}

TEST(ConnectionQuotaTest, WhoMayHaveEverythingHasIt) {
  const ListenOptions options = Limits(1024, 1024);
  EXPECT_TRUE(HasRoom(options, 1023, 1023));
  EXPECT_FALSE(HasRoom(options, 1024, 1024));
}

TEST(ConnectionQuotaTest, OfFewConnectionsNoneIsReserved) {
  EXPECT_TRUE(HasRoom(Limits(7, 0), 6, 6));
  EXPECT_TRUE(HasRoom(Limits(1, 0), 0, 0));
  EXPECT_FALSE(HasRoom(Limits(8, 0), 7, 7));
}

TEST(ConnectionQuotaTest, WhoIsRefusedLearnsWhy) {
  const auto text = [](const ListenOptions& options, uint32_t all, uint32_t of_client) {
    return std::string(CheckRoomForClient(options, all, of_client, /*clients=*/2).message());
  };
  EXPECT_EQ(text(Limits(9, 0), 9, 0),
            "the server has all 9 connections (ListenOptions::max_connections)");
  EXPECT_EQ(text(Limits(9, 2), 5, 2),
            "the server has 2 connections of this client, and takes 2 "
            "(ListenOptions::max_connections_of_one): close some, or send more by each");
  EXPECT_EQ(text(Limits(9, 0), 8, 5),
            "the server has 8 of its 9 connections, 5 of this client, and keeps the rest for "
            "clients with fewer than 3 (ListenOptions::max_connections_of_one): close some, or try "
            "again later");
}

PathInfo From(const std::string& peer, PeerIdentity identity = {}) {
  PathInfo path;
  path.peer = peer;
  path.identity = std::move(identity);
  return path;
}

TEST(ConnectionQuotaTest, OneClientIsWhoHasProvedToBeTheSameOrComesFromOneHost) {
  const PathInfo host = From("10.0.0.7:35100");
  EXPECT_TRUE(AreOneClient(host, From("10.0.0.7:2")));
  EXPECT_FALSE(AreOneClient(host, From("10.0.0.71:35100")));
  EXPECT_FALSE(AreOneClient(host, From("[2001:db8::1]:35100")));
  EXPECT_TRUE(AreOneClient(From("127.0.0.1:7"), From("127.9.0.2:8")));
  EXPECT_TRUE(AreOneClient(From("127.0.0.1:7"), From("[::1]:8")));
  // Of a socket that takes both.
  EXPECT_TRUE(AreOneClient(host, From("[::ffff:10.0.0.7]:8")));
  EXPECT_FALSE(AreOneClient(From("[::ffff:10.0.0.8]:8"), From("[::ffff:10.0.0.7]:8")));
  EXPECT_TRUE(AreOneClient(From("127.0.0.1:7"), From("[::ffff:127.0.0.1]:8")));
  // A network of 64 bits is one.
  EXPECT_TRUE(AreOneClient(From("[2001:db8::1]:7"), From("[2001:db8:0:0:9::1]:8")));
  EXPECT_FALSE(AreOneClient(From("[2001:db8::1]:7"), From("[2001:db8:0:1::1]:7")));
  EXPECT_TRUE(
      AreOneClient(From("unix:(process 77 of user 1000)"), From("unix:(process 78 of user 1000)")));
  EXPECT_FALSE(
      AreOneClient(From("unix:(process 77 of user 1000)"), From("unix:(process 77 of user 100)")));
  const PeerIdentity store = {.authentication = Authentication::kCertificate,
                              .subject = "CN=store-7"};
  const PeerIdentity other = {.authentication = Authentication::kCertificate,
                              .subject = "CN=store-8"};
  EXPECT_TRUE(AreOneClient(From("10.0.0.7:1", store), From("10.0.0.8:2", store)));
  EXPECT_FALSE(AreOneClient(From("10.0.0.7:1", store), From("10.0.0.7:1", other)));
  EXPECT_FALSE(AreOneClient(From("10.0.0.7:1", store), From("10.0.0.7:1")));
}

TEST(ConnectionQuotaTest, NumbersThatMakeNoSenseAreNamed) {
  EXPECT_TRUE(CheckConnectionQuota(Limits(1, 1)).ok());
  EXPECT_TRUE(CheckConnectionQuota(Limits(1, 0)).ok());
  EXPECT_EQ(
      CheckConnectionQuota(Limits(0, 0)),
      absl::InvalidArgumentError("ListenOptions::max_connections is 0; at least 1 is needed"));
  EXPECT_EQ(CheckConnectionQuota(Limits(4, 5)),
            absl::InvalidArgumentError("ListenOptions::max_connections_of_one is 5; 0 to 4, "
                                       "max_connections, are allowed"));
}

}  // namespace
}  // namespace weft
