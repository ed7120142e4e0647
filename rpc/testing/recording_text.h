// Bytes as the text of a recording has them: hexadecimal digits in pairs, and HEX*COUNT for a byte
// that is repeated, between blanks.
//
// Threads: plain functions.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "core/strings.h"

namespace weft::test {

inline std::string TextOfBytes(std::string_view bytes) {
  constexpr size_t kWorthIt = 8;  // of one byte in a row
  std::string text;
  char hex[3];
  for (size_t at = 0; at < bytes.size();) {
    size_t end = at;
    while (end < bytes.size() && bytes[end] == bytes[at]) ++end;
    const size_t count = end - at >= kWorthIt ? end - at : 1;
    std::snprintf(hex, sizeof(hex), "%02x", static_cast<unsigned char>(bytes[at]));
    text += count > 1 ? StrCat(" ", hex, "*", count, " ") : hex;
    at += count;
  }
  return text;
}

inline std::string BytesOfText(const std::string& text) {
  std::string bytes;
  for (size_t at = 0; at + 1 < text.size();) {
    if (text[at] == ' ') {
      ++at;
      continue;
    }
    const auto byte = static_cast<char>(std::stoul(text.substr(at, 2), nullptr, 16));
    at += 2;
    size_t count = 1;
    if (at < text.size() && text[at] == '*') {
      size_t digits = 0;
      count = std::stoul(text.substr(at + 1), &digits);
      at += 1 + digits;
    }
    bytes.append(count, byte);
  }
  return bytes;
}

}  // namespace weft::test
