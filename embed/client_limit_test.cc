#include "embed/client_limit.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::embed {
namespace {

TEST(ClientLimitTest, APlaceIsGivenBackOnceWhereverItIsMoved) {
  ClientLimit limit("cups", 8);
  std::vector<ClientLimit::Place> places;
  for (int i = 0; i < 7; ++i) places.push_back(*limit.Take(/*client=*/1));
  EXPECT_FALSE(limit.Take(1).ok()) << "the last one is for others";
  std::optional<ClientLimit::Place> moved(std::move(places.back()));
  places.pop_back();
  EXPECT_FALSE(limit.Take(1).ok());
  moved.reset();
  EXPECT_TRUE(limit.Take(1).ok());
  moved.emplace() = *limit.Take(1);
  EXPECT_FALSE(limit.Take(1).ok());
  moved = ClientLimit::Place();
  EXPECT_TRUE(limit.Take(1).ok());
}

TEST(ClientLimitTest, WhoIsRefusedLearnsWhyAndWhatToDo) {
  ClientLimit limit("cups", 8);
  const ClientLimit::Place place = *limit.Take(1, 6);
  EXPECT_EQ(limit.Take(2, 3).status(),
            absl::ResourceExhaustedError(
                "the server has 6 of 8 cups in use, 0 by this client, which can have no 3 more: "
                "use fewer, or try again later"));
}

}  // namespace
}  // namespace weft::embed
