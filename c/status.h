// Statuses, arguments and options on their way through the C interface.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "core/strings.h"
#include "weft/c.h"
#include "weft/path.h"
#include "weft/security.h"

struct weft_status {
  absl::Status status;
  std::string message;  // with its zero byte
};

// Of the functions of weft/c*.h, which return a weft_status.
#define WEFT_C_REQUIRE(pointer)                      \
  do {                                               \
    if ((pointer) == nullptr) [[unlikely]]           \
      return ::weft::c::Missing(__func__, #pointer); \
  } while (false)

#define WEFT_C_RETURN_IF_ERROR(...)                                                     \
  do {                                                                                  \
    if (::absl::Status weft_c_status = (__VA_ARGS__); !weft_c_status.ok()) [[unlikely]] \
      return ::weft::c::ToC(std::move(weft_c_status));                                  \
  } while (false)

namespace weft::c {

// Null: OK.
weft_status* ToC(absl::Status&& status);
// Takes it.
absl::Status FromC(weft_status* status);

// INVALID_ARGUMENT: `function` was given NULL as `what`.
weft_status* Missing(std::string_view function, std::string_view what);

absl::Status Invalid(std::string_view function, std::string_view why);

// What a callback is to call with a status.
inline void CallDone(weft_done done, void* arg, absl::Status&& status) {
  done(arg, ToC(std::move(status)));
}

inline bool AreBytes(weft_bytes bytes) { return bytes.data != nullptr || bytes.size == 0; }
inline ByteSpan SpanOf(weft_bytes bytes) {
  return {static_cast<const std::byte*>(bytes.data), bytes.size};
}
inline weft_bytes ToC(ByteSpan bytes) { return {bytes.data(), bytes.size()}; }
inline weft_bytes ToC(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view TextOf(weft_bytes bytes) { return AsStringView(SpanOf(bytes)); }
inline std::string StringOf(const char* text) { return text == nullptr ? "" : text; }

// INVALID_ARGUMENT: not bytes.
absl::Status CheckBytes(std::string_view function, std::string_view what, weft_bytes bytes);

// What a program has said of `size` bytes of options of which this library knows `known`.
absl::Status CheckOptionsSize(std::string_view type, size_t size, size_t known);

// The options that a program has given (null: none), and defaults (zeros) for what its header did
// not have yet.
template <class Options>
absl::Status ReadOptions(std::string_view type, const Options* given, Options* options) {
  std::memset(options, 0, sizeof(*options));
  if (given == nullptr) return absl::OkStatus();
  if (absl::Status wrong = CheckOptionsSize(type, given->struct_size, sizeof(*options));
      !wrong.ok()) {
    return wrong;
  }
  std::memcpy(options, given, given->struct_size);
  return absl::OkStatus();
}

// `reserved` fields, which a later header may give a meaning.
absl::Status CheckReserved(std::string_view type, uint32_t reserved);

// Of a channel or a server. Null: none.
absl::Status ReadSecurity(const weft_security* given, std::optional<SecurityOptions>* security);
absl::Status ReadPaths(const char* paths, LinkOptions* link);

}  // namespace weft::c
