#include "bench/perf/options.h"

#include "gtest/gtest.h"

namespace weft::bench {
namespace {

TEST(PerfOptionsTest, WithoutArgumentsBothPathsAreMeasured) {
  const auto options = ParsePerfOptions({});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->paths, (std::vector<std::string>{"shm", "tcp"}));
  EXPECT_EQ(options->json_file, "");
}

TEST(PerfOptionsTest, QuickFitsIntoThirtySecondsWhateverElseIsAsked) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--quick"},
                                                    {"--quick", "--repeat", "5"},
                                                    {"--paths=tcp", "--quick"}}) {
    const auto options = ParsePerfOptions(arguments);
    ASSERT_TRUE(options.ok());
    const double legs = kLegsPerPath * static_cast<double>(options->paths.size());
    EXPECT_LE(options->rounds * legs * options->seconds_per_leg, 24.01);
  }
}

TEST(PerfOptionsTest, ValuesFollowTheirNameOrAnEqualsSign) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--json", "a.json", "--repeat", "2"},
        {"--json=a.json", "--repeat=2"}}) {
    const auto options = ParsePerfOptions(arguments);
    ASSERT_TRUE(options.ok());
    EXPECT_EQ(options->json_file, "a.json");
    EXPECT_EQ(options->rounds, 2);
  }
}

TEST(PerfOptionsTest, EveryPathCanBeAskedForInAnyOrder) {
  const auto options = ParsePerfOptions({"--paths=siw,rxe,verbs,tcp,shm"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->paths, (std::vector<std::string>{"siw", "rxe", "verbs", "tcp", "shm"}));
}

TEST(PerfOptionsTest, AnUnknownPathIsToldWhichOnesThereAre) {
  const auto options = ParsePerfOptions({"--paths=rxe,ib"});
  ASSERT_FALSE(options.ok());
  for (const char* name : {"\"ib\"", "shm", "verbs", "rxe", "siw"}) {
    EXPECT_NE(options.status().message().find(name), absl::string_view::npos) << name;
  }
}

TEST(PerfOptionsTest, SecondsAskedForHoldEvenIfQuick) {
  const auto options = ParsePerfOptions({"--quick", "--seconds=0.05"});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->seconds_per_leg, 0.05);
}

TEST(PerfOptionsTest, WhatIsWrongIsNamed) {
  for (const auto& [argument, named] : {std::pair{"--paths=ib", "ib"},
                                        {"--paths=,", "--paths"},
                                        {"--repeat=0", "0"},
                                        {"--seconds=0", "0"},
                                        {"--repeat=x", "x"},
                                        {"--json", "--json"},
                                        {"--fast", "--fast"}}) {
    const auto options = ParsePerfOptions({argument});
    ASSERT_FALSE(options.ok()) << argument;
    EXPECT_NE(options.status().message().find(named), absl::string_view::npos) << argument;
  }
}

}  // namespace
}  // namespace weft::bench
