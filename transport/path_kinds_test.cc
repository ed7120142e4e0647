#include "transport/path_kinds.h"

#include <stdlib.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

// Sets WEFT_PATHS for one test, or does not.
class PathKindsTest : public testing::Test {
 protected:
  PathKindsTest() { unsetenv(kPathsVariable); }
  ~PathKindsTest() override { unsetenv(kPathsVariable); }
  static void Set(const char* paths) { setenv(kPathsVariable, paths, /*overwrite=*/1); }
  // "shm verbs"
  static std::string Allowed(const LinkOptions& options = {}) {
    const absl::StatusOr<PathKinds> kinds = ReadPathKinds(options);
    if (!kinds.ok()) return kinds.status().ToString();
    std::string names;
    for (const PathKind kind : kinds->allowed) {
      names += std::string(names.empty() ? "" : " ") + std::string(PathKindName(kind));
    }
    return names;
  }
  static std::string WhyDenied(PathKind kind, const LinkOptions& options = {}) {
    const absl::StatusOr<PathKinds> kinds = ReadPathKinds(options);
    if (!kinds.ok()) return kinds.status().ToString();
    for (const PathKinds::Denial& denial : kinds->denied) {
      if (denial.kind == kind) return denial.why;
    }
    return "(allowed)";
  }
};

TEST_F(PathKindsTest, EverythingIsAllowedByDefaultAndInThisOrder) {
  EXPECT_EQ(Allowed(), "shm verbs tcp");
}

TEST_F(PathKindsTest, TheEnvironmentAllowsAndOrders) {
  Set("tcp,verbs");
  EXPECT_EQ(Allowed(), "tcp verbs");
  EXPECT_EQ(WhyDenied(PathKind::kShm), "denied by WEFT_PATHS=tcp,verbs");
}

TEST_F(PathKindsTest, TheEnvironmentDeniesAfterACircumflex) {
  Set("^tcp");
  EXPECT_EQ(Allowed(), "shm verbs");
  EXPECT_EQ(WhyDenied(PathKind::kTcp), "denied by WEFT_PATHS=^tcp");
  Set("^shm,verbs");
  EXPECT_EQ(Allowed(), "tcp");
}

TEST_F(PathKindsTest, DeniedPathsAreTakenFromWhateverIsAllowed) {
  LinkOptions options;
  options.denied_paths = {PathKind::kShm};
  EXPECT_EQ(Allowed(options), "verbs tcp");
  EXPECT_EQ(WhyDenied(PathKind::kShm, options), "denied by its options (denied_paths = shm)");
  Set("shm,tcp");
  EXPECT_EQ(Allowed(options), "tcp");
  EXPECT_EQ(WhyDenied(PathKind::kVerbs, options), "denied by WEFT_PATHS=shm,tcp");
}

TEST_F(PathKindsTest, OfiTcpHasToBeNamed) {
  const auto kinds = [](const LinkOptions& options) { return ReadPathKinds(options)->allowed; };
  const std::vector<PathKind> usual = {PathKind::kShm, PathKind::kVerbs, PathKind::kTcp};
  LinkOptions options;
  EXPECT_EQ(kinds(options), usual);
  EXPECT_EQ(ReadPathKinds(options)->denied.size(), 0u)
      << "nor is anybody told that it is not there";
  options.paths = {PathKind::kTcp, PathKind::kOfiTcp};
  EXPECT_EQ(kinds(options), options.paths);
  EXPECT_TRUE(ReadPathKinds(options)->Allows(PathKind::kOfiTcp));
  options.denied_paths = {PathKind::kOfiTcp};
  EXPECT_EQ(kinds(options), std::vector<PathKind>{PathKind::kTcp});
  EXPECT_FALSE(ReadPathKinds(options)->Allows(PathKind::kOfiTcp));
  options = {};
  Set("ofi_tcp");
  EXPECT_EQ(kinds(options), std::vector<PathKind>{PathKind::kOfiTcp});
  Set("^ofi_tcp");
  EXPECT_EQ(kinds(options), usual);
}

TEST_F(PathKindsTest, ListsThatCannotBeAreNamedWithWhatIsAllowed) {
  const struct {
    const char* value;
    const char* why;
  } kCases[] = {
      {"ib", "the known ones are shm, verbs, tcp"},
      {"^shm,verbs,tcp", "no path is left: shm is denied by WEFT_PATHS=^shm"},
      {"^", "is not known"},
      {"sim", "path \"sim\" does not lead to other processes"},
  };
  for (const auto& c : kCases) {
    Set(c.value);
    const absl::Status status = ReadPathKinds({}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.value;
    const std::string text(status.message());
    EXPECT_NE(text.find(std::string("WEFT_PATHS=") + c.value), std::string::npos) << text;
    EXPECT_NE(text.find(c.why), std::string::npos) << text;
  }
  Set("");
  EXPECT_EQ(Allowed(), "shm verbs tcp") << "nothing is said";
}

TEST_F(PathKindsTest, OptionsThatCannotBeAreNamed) {
  const struct {
    std::vector<PathKind> paths;
    std::vector<PathKind> denied_paths;
    const char* why;
  } kCases[] = {
      {{PathKind::kSim}, {}, "LinkOptions::paths: path \"sim\""},
      {{}, {PathKind::kSim}, "LinkOptions::denied_paths: path \"sim\""},
      {{PathKind::kTcp}, {PathKind::kTcp}, "no path is left"},
  };
  for (const auto& c : kCases) {
    LinkOptions options;
    options.paths = c.paths;
    options.denied_paths = c.denied_paths;
    const absl::Status status = ReadPathKinds(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why;
    EXPECT_NE(std::string(status.message()).find(c.why), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace weft
