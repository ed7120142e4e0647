// Text across two string views.
//
// Some distributions (Debian 12 among them) build Abseil with a string_view of its own, which does
// not convert to or from std::string_view; others use the standard one. Weft's interfaces say
// std::string_view; use these functions where Abseil's begin. They cost nothing either way.
//
// Threads:   all functions are pure.
// Lifetime:  views borrow from their argument.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft {

inline absl::string_view ToAbsl(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

inline std::string_view ToStd(absl::string_view text) {
  return std::string_view(text.data(), text.size());
}

namespace internal {

template <class T>
decltype(auto) ToStrCatArgument(const T& part) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return ToAbsl(part);
  } else {
    return static_cast<const T&>(part);
  }
}

}  // namespace internal

// absl::StrCat that takes std::string_view as well.
template <class... Parts>
std::string StrCat(const Parts&... parts) {
  return absl::StrCat(internal::ToStrCatArgument(parts)...);
}

}  // namespace weft
