#include "examples/kv/client/dataset.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/strings.h"

namespace kv::client {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 30;
constexpr size_t kMaxKeyBytes = 1024;            // kv.proto
constexpr size_t kChunkBytes = size_t{1} << 20;  // of one read(2)

absl::StatusOr<std::string> ReadAll(int fd, const std::string& path) {
  std::string text;
  while (true) {
    const size_t have = text.size();
    text.resize(have + kChunkBytes);
    const ssize_t got = read(fd, text.data() + have, kChunkBytes);
    if (got < 0 && errno == EINTR) {
      text.resize(have);
      continue;
    }
    if (got < 0) return weft::StatusFromErrno(errno, weft::StrCat("read ", path));
    text.resize(have + static_cast<size_t>(got));
    if (got == 0) return text;
    if (text.size() > kMaxFileBytes) {
      return absl::ResourceExhaustedError(
          weft::StrCat(path, " has more than ", kMaxFileBytes, " bytes: split it"));
    }
  }
}

std::string LineNumberKey(size_t number) { return absl::StrFormat("%010d", number); }

Dataset::Pair ParseLine(std::string_view line, size_t number) {
  const size_t tab = line.find('\t');
  const bool has_key = tab != std::string_view::npos && tab >= 1 && tab <= kMaxKeyBytes;
  if (!has_key) return {LineNumberKey(number), line, false};
  return {std::string(line.substr(0, tab)), line.substr(tab + 1), false};
}

}  // namespace

absl::StatusOr<Dataset> Dataset::Read(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return weft::StatusFromErrno(errno, weft::StrCat("open ", path));
  const auto close_file = absl::MakeCleanup([fd] { close(fd); });
  WEFT_ASSIGN_OR_RETURN(std::string text, ReadAll(fd, path));
  return FromText(std::move(text));
}

Dataset Dataset::FromText(std::string text) { return Dataset(std::move(text)); }

Dataset::Dataset(std::string text) : text_(std::make_unique<const std::string>(std::move(text))) {
  std::string_view rest = *text_;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    pairs_.push_back(ParseLine(line, pairs_.size() + 1));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  MarkReplaced();
}

void Dataset::MarkReplaced() {
  absl::flat_hash_set<absl::string_view> seen;
  seen.reserve(pairs_.size());
  for (auto pair = pairs_.rbegin(); pair != pairs_.rend(); ++pair) {
    pair->replaced = !seen.insert(pair->key).second;
  }
}

size_t Dataset::bytes() const {
  size_t bytes = 0;
  for (const Pair& pair : pairs_) bytes += pair.key.size() + pair.value.size();
  return bytes;
}

}  // namespace kv::client
