// Errors as values: early-return macros, and absl::Status from errno.
//
// Every fallible function of Weft returns absl::Status or absl::StatusOr<T>. The code says what the
// caller may do next (weft/status.h has the table), the text says what failed, where, and with
// which value.
//
// Threads:  all functions are pure.
#pragma once

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// The status for an errno value: "<what>: <the system's text> (errno <n>)". Its code follows
// that table; UNKNOWN where nothing of it fits. Zero is OK; the sign is ignored, because the kernel
// and libfabric return negated values where libc stores positive ones. `what` names the action and
// its operand, as in "connect to 10.0.0.7:4711".
absl::Status StatusFromErrno(int err, std::string_view what);

// `status` with "<where>: " before its text. Keeps code and payloads; OK stays OK.
absl::Status Annotate(absl::Status status, std::string_view where);

// What a child of fork(2) gets instead of `what`, as in "libcurl", which another thread was just
// starting when the child was forked (ProcessWide::GetOnce()). UNAVAILABLE.
absl::Status LostInFork(std::string_view what);

}  // namespace weft

// Leaves the enclosing function with the status of an expression that is not OK.
// The expression is evaluated once.
#define WEFT_RETURN_IF_ERROR(...)                                          \
  do {                                                                     \
    if (::absl::Status weft_status_ = (__VA_ARGS__); !weft_status_.ok()) { \
      return weft_status_;                                                 \
    }                                                                      \
  } while (false)

// Evaluates an absl::StatusOr<T> expression once; leaves the enclosing function with its status, or
// moves its value into `lhs`, which may be a declaration (`auto x`). It expands to several
// statements: REQUIRES braces around it where it is the body of an `if`. A declaration with
// a comma (`auto [a, b]`) does not fit into a macro argument.
#define WEFT_ASSIGN_OR_RETURN(lhs, ...) \
  WEFT_ASSIGN_OR_RETURN_NAMED_(WEFT_STATUS_JOIN_(weft_result_, __LINE__), lhs, (__VA_ARGS__))

#define WEFT_ASSIGN_OR_RETURN_NAMED_(result, lhs, expr)  \
  auto result = expr;                                    \
  if (!result.ok()) return ::std::move(result).status(); \
  lhs = *::std::move(result)

#define WEFT_STATUS_JOIN_(a, b) WEFT_STATUS_JOIN_EXPANDED_(a, b)
#define WEFT_STATUS_JOIN_EXPANDED_(a, b) a##b
