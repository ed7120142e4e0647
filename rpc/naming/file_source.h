// The servers that a file names, one address a line; "#" begins a comment. The file is looked at
// every `refresh_us`, and read when it is another one, or was written to. What is half written must
// not be read: write another file and rename it to this one.
//
// Threads, lifetime: AddressSource's. The file is read on the engine's thread: it is small and
// local, and stat(2) alone is all that most looks take.
// Errors: the file cannot be read, has no address, has a line that is none, or is larger than
//   kMaxBytes: said again when it was written to. That it cannot be read, or names none, is said at
//   every look.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/timer_wheel.h"
#include "rpc/client/address_source.h"
#include "transport/engine.h"
#include "transport/file_stamp.h"

namespace weft {

class FileSource final : public AddressSource, private Timer {
 public:
  // As long a line for each of kMaxServersListed servers as a name and a zone need.
  static constexpr uint64_t kMaxBytes = uint64_t{kMaxServersListed} * 256;

  explicit FileSource(std::string path) : path_(std::move(path)) {}

  void Start(EngineCore& engine, Host* host, uint64_t refresh_us) override;
  void Refresh() override {}  // who writes the file knows as much; it is looked at soon anyway

 private:
  void OnTimer() override;
  void Look();
  absl::StatusOr<std::vector<ListedServer>> Read() const;

  const std::string path_;
  EngineCore* engine_ = nullptr;
  Host* host_ = nullptr;
  uint64_t refresh_us_ = 0;
  std::optional<FileStamp> stamp_;  // none: read it again
};

}  // namespace weft
