#include "core/json.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/strings.h"

namespace weft {
namespace {

std::string Enclose(char open, const std::vector<std::string>& values, char close,
                    std::string_view indent) {
  const std::string begin(1, open);
  const std::string end(1, close);
  if (indent.empty() || values.empty()) return StrCat(begin, absl::StrJoin(values, ", "), end);
  const std::string line = StrCat("\n", indent);
  return StrCat(begin, line, absl::StrJoin(values, StrCat(",", line)), "\n", end);
}

}  // namespace

std::string JsonString(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&json, "\\u%04x", byte);
    } else if (byte >= 0x80) {
      json += "\\ufffd";
    } else {
      json += c;
    }
  }
  return json + "\"";
}

std::string JsonArray(const std::vector<std::string>& values, std::string_view indent) {
  return Enclose('[', values, ']', indent);
}

void JsonObject::AddJson(std::string_view name, std::string_view json) {
  members_.push_back(StrCat(JsonString(name), ": ", json));
}

void JsonObject::Add(std::string_view name, std::string_view text) {
  AddJson(name, JsonString(text));
}

void JsonObject::Add(std::string_view name, bool value) { AddJson(name, value ? "true" : "false"); }

void JsonObject::Add(std::string_view name, uint64_t value) { AddJson(name, StrCat(value)); }

void JsonObject::Add(std::string_view name, double value) {
  AddJson(name, std::isfinite(value) ? absl::StrFormat("%.9g", value) : "null");
}

void JsonObject::AddOrNull(std::string_view name, std::string_view text) {
  AddJson(name, text.empty() ? "null" : JsonString(text));
}

void JsonObject::AddOrNull(std::string_view name, uint64_t value) {
  AddJson(name, value == 0 ? "null" : StrCat(value));
}

void JsonObject::AddOrNull(std::string_view name, double value) {
  AddJson(name, value == 0 ? "null" : StrCat(value));
}

void JsonObject::AddIndexOrNull(std::string_view name, int value) {
  AddJson(name, value < 0 ? "null" : StrCat(value));
}

std::string JsonObject::text(std::string_view indent) const {
  return Enclose('{', members_, '}', indent);
}

}  // namespace weft
