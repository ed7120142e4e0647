#include "transport/devices/sysfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "core/strings.h"

namespace weft {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Takes a number from the front.
uint64_t TakeNumber(std::string_view* text) {
  uint64_t number = 0;
  while (!text->empty() && IsDigit(text->front())) {
    number = number * 10 + static_cast<uint64_t>(text->front() - '0');
    text->remove_prefix(1);
  }
  return number;
}

bool NaturalLess(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    if (IsDigit(a.front()) && IsDigit(b.front())) {
      const uint64_t x = TakeNumber(&a);
      const uint64_t y = TakeNumber(&b);
      if (x != y) return x < y;
    } else if (a.front() != b.front()) {
      return a.front() < b.front();
    } else {
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  return a.empty() && !b.empty();
}

std::string_view FirstLine(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  const size_t last = text.find_last_not_of(" \t\r");
  return last == std::string_view::npos ? "" : text.substr(0, last + 1);
}

}  // namespace

SysfsFolder SysfsFolder::operator/(std::string_view name) const {
  return SysfsFolder(StrCat(path_, "/", name));
}

bool SysfsFolder::Exists() const { return ::access(path_.c_str(), F_OK) == 0; }

std::vector<std::string> SysfsFolder::Names() const {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path_.c_str()), ::closedir);
  if (folder == nullptr) return names;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (names.size() == kMaxNames) break;
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end(),
            [](const std::string& a, const std::string& b) { return NaturalLess(a, b); });
  return names;
}

std::string SysfsFolder::Line(std::string_view file) const {
  const int descriptor = ::open((*this / file).path().c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return "";
  char text[4095];
  const ssize_t bytes = ::read(descriptor, text, sizeof(text));
  ::close(descriptor);
  return bytes <= 0 ? "" : std::string(FirstLine({text, static_cast<size_t>(bytes)}));
}

std::optional<int64_t> SysfsFolder::Number(std::string_view file) const {
  const std::string line = Line(file);
  char* end = nullptr;
  const int64_t number = std::strtoll(line.c_str(), &end, 0);
  if (line.empty() || *end != '\0') return std::nullopt;
  return number;
}

std::string SysfsFolder::LinkName(std::string_view link) const {
  char target[4096];
  const ssize_t bytes = ::readlink((*this / link).path().c_str(), target, sizeof(target));
  if (bytes <= 0) return "";
  const std::string_view text(target, static_cast<size_t>(bytes));
  return std::string(text.substr(text.rfind('/') + 1));
}

}  // namespace weft
