// Writes JSON: enough of it for reports.
//
//   JsonObject device;
//   device.Add("name", "mlx5_0");
//   device.AddOrNull("mtu_bytes", 2048);
//   std::string text = device.text();       // {"name": "mlx5_0", "mtu_bytes": 2048}
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// In quotes. Bytes that are not ASCII become U+FFFD: what we report are names of the kernel.
std::string JsonString(std::string_view text);

// "[a, b]", of values that are JSON already; one in a line, if `indent` is not empty.
std::string JsonArray(const std::vector<std::string>& values, std::string_view indent = "");

class JsonObject {
 public:
  void Add(std::string_view name, std::string_view text);
  void Add(std::string_view name, const char* text) { Add(name, std::string_view(text)); }
  void Add(std::string_view name, bool value);
  void Add(std::string_view name, uint64_t value);
  void Add(std::string_view name, double value);  // 9 digits; null for what is no number
  void AddJson(std::string_view name, std::string_view json);  // a value that is JSON already

  // null for what is not known: empty text, 0.
  void AddOrNull(std::string_view name, std::string_view text);
  void AddOrNull(std::string_view name, uint64_t value);
  void AddOrNull(std::string_view name, double value);
  // null for what is not known: -1.
  void AddIndexOrNull(std::string_view name, int value);

  // In one line; one member in a line, if `indent` is not empty.
  std::string text(std::string_view indent = "") const;

 private:
  std::vector<std::string> members_;
};

}  // namespace weft
