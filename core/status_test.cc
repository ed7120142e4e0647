#include "core/status.h"

#include <cerrno>
#include <climits>
#include <memory>
#include <string>

#include "absl/strings/cord.h"
#include "core/strings.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

std::string Text(const absl::Status& status) { return std::string(ToStd(status.message())); }

TEST(StatusFromErrno, SaysWhatFailedAndWithWhichNumber) {
  const absl::Status status = StatusFromErrno(ECONNREFUSED, "connect to 10.0.0.7:4711");
  EXPECT_EQ(Text(status), "connect to 10.0.0.7:4711: Connection refused (errno 111)");
}

TEST(StatusFromErrno, CodeSaysWhatTheCallerMayDoNext) {
  EXPECT_EQ(StatusFromErrno(EINVAL, "x").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(StatusFromErrno(ERANGE, "x").code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(StatusFromErrno(EBADF, "x").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(StatusFromErrno(ENOENT, "x").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(StatusFromErrno(EADDRINUSE, "x").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(StatusFromErrno(EACCES, "x").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(StatusFromErrno(EMFILE, "x").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(StatusFromErrno(ECONNRESET, "x").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(StatusFromErrno(ENOSYS, "x").code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(StatusFromErrno(ETIMEDOUT, "x").code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(StatusFromErrno(ECANCELED, "x").code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(StatusFromErrno(EIO, "x").code(), absl::StatusCode::kUnknown);
}

TEST(StatusFromErrno, IgnoresTheSign) {
  EXPECT_EQ(StatusFromErrno(-ENOMEM, "x"), StatusFromErrno(ENOMEM, "x"));
}

TEST(StatusFromErrno, ZeroIsOk) { EXPECT_TRUE(StatusFromErrno(0, "x").ok()); }

TEST(StatusFromErrno, NumbersThatNobodyKnowsAreUnknown) {
  EXPECT_EQ(StatusFromErrno(100'000, "x").code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(StatusFromErrno(INT_MIN, "x").code(), absl::StatusCode::kUnknown);
}

TEST(Annotate, PutsThePlaceFirstAndKeepsCodeAndPayload) {
  absl::Status status = absl::NotFoundError("no such key");
  status.SetPayload("weft/test", absl::Cord("payload"));
  const absl::Status annotated = Annotate(status, "shard 7");
  EXPECT_EQ(annotated.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Text(annotated), "shard 7: no such key");
  EXPECT_EQ(annotated.GetPayload("weft/test"), absl::Cord("payload"));
}

TEST(Annotate, LeavesOkAlone) { EXPECT_EQ(Annotate(absl::OkStatus(), "x"), absl::OkStatus()); }

TEST(LostInFork, SaysWhatAndWhatToDo) {
  const absl::Status status = LostInFork("libcurl");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Text(status),
            "libcurl was just being started by another thread when this process was forked: fork "
            "before or after that, or start a program by exec");
}

struct Calls {
  int made = 0;
  absl::Status Make(absl::Status result) {
    ++made;
    return result;
  }
};

TEST(ReturnIfError, LeavesOnlyOnErrorAndEvaluatesOnce) {
  Calls calls;
  const auto run = [&calls](absl::Status status) -> absl::Status {
    WEFT_RETURN_IF_ERROR(calls.Make(status));
    return absl::AlreadyExistsError("reached the end");
  };
  EXPECT_EQ(run(absl::OkStatus()).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(calls.made, 1);
  EXPECT_EQ(run(absl::AbortedError("a")).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(calls.made, 2);
}

absl::StatusOr<std::unique_ptr<int>> Box(int value) {
  if (value < 0) return absl::OutOfRangeError("negative");
  return std::make_unique<int>(value);
}

absl::StatusOr<int> SumOfBoxes(int a, int b) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<int> first, Box(a));
  std::unique_ptr<int> second;
  WEFT_ASSIGN_OR_RETURN(second, Box(b));
  return *first + *second;
}

TEST(AssignOrReturn, MovesTheValueOut) { EXPECT_EQ(SumOfBoxes(2, 3).value(), 5); }

TEST(AssignOrReturn, LeavesWithTheStatus) {
  EXPECT_EQ(SumOfBoxes(-1, 3).status(), absl::OutOfRangeError("negative"));
  EXPECT_EQ(SumOfBoxes(1, -3).status(), absl::OutOfRangeError("negative"));
}

TEST(StrCat, TakesBothStringViews) {
  EXPECT_EQ(StrCat(std::string_view("a"), absl::string_view("b"), std::string("c"), "d", 5),
            "abcd5");
}

}  // namespace
}  // namespace weft
