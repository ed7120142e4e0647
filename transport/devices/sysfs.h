// Reading of sysfs-like trees: many small files of one line each, some of which refuse to be read.
//
// Threads: plain values. Errors: what is not there, or cannot be read, is empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

class SysfsFolder {
 public:
  // Names are read up to this many: a port's GID table has 1024 entries at most, a host fewer
  // interfaces.
  static constexpr size_t kMaxNames = 4096;

  explicit SysfsFolder(std::string path) : path_(std::move(path)) {}
  SysfsFolder operator/(std::string_view name) const;

  const std::string& path() const { return path_; }
  bool Exists() const;

  // Names in it, as a person orders them: mlx5_2 before mlx5_10.
  std::vector<std::string> Names() const;

  // The first line of a file, without blanks at its end. At most 4095 bytes, one page of sysfs.
  std::string Line(std::string_view file) const;

  // The same as a number: decimal, or hexadecimal after 0x.
  std::optional<int64_t> Number(std::string_view file) const;

  // The last part of where a symbolic link points: "mlx5_core" for ../../bus/pci/drivers/mlx5_core.
  std::string LinkName(std::string_view link) const;

 private:
  std::string path_;
};

}  // namespace weft
