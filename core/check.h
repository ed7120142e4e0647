// Assertions about our own code. A failed one is a bug in Weft or in its caller: it prints the
// condition and its place on stderr and aborts. Nothing that a peer sends, and nothing that the
// system may refuse, is ever checked this way: those are errors, reported as absl::Status.
//
// Threads:  any.
#pragma once

namespace weft::internal {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace weft::internal

// Aborts unless `cond` holds; in every build. The cost is one predicted branch.
#define WEFT_CHECK(...)                                   \
  (__builtin_expect(static_cast<bool>(__VA_ARGS__), true) \
       ? static_cast<void>(0)                             \
       : ::weft::internal::CheckFailed(#__VA_ARGS__, __FILE__, __LINE__))

// WEFT_CHECK in debug builds. With NDEBUG the condition is compiled, and never evaluated.
#ifdef NDEBUG
#define WEFT_DCHECK(...) static_cast<void>(true || static_cast<bool>(__VA_ARGS__))
#else
#define WEFT_DCHECK(...) WEFT_CHECK(__VA_ARGS__)
#endif
