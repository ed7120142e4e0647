#include "transport/connection_quota.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "core/client_shares.h"

namespace weft {
namespace {

ListenOptions Limits(uint32_t all, uint32_t of_one) {
  ListenOptions options;
  options.max_connections = all;
  options.max_connections_of_one = of_one;
  return options;
}

constexpr uint64_t kClient = 1;

// So many are up, of kClient so many, and so many clients have any.
ClientShares Up(uint32_t all, uint32_t of_client, size_t clients) {
  ClientShares up;
  if (of_client > 0) up.Take(kClient, of_client);
  uint32_t others = all - of_client;
  for (uint64_t other = kClient + 1; up.clients() + 1 < clients && others > 1; --others) {
    up.Take(other++, 1);
  }
  if (others > 0) up.Take(0, others);
  EXPECT_EQ(up.all(), all);
  return up;
}

bool HasRoom(const ListenOptions& options, uint32_t all, uint32_t of_client, size_t clients = 1) {
  const absl::Status room = CheckRoomForClient(options, Up(all, of_client, clients), kClient);
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
    return std::string(
        CheckRoomForClient(options, Up(all, of_client, /*clients=*/2), kClient).message());
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
