// A folder that nobody but this user can write to, and files in it that nobody else has a part in:
// where `weft cert` keeps keys.
//
// Threads: one at a time. Lifetime: the folder may be renamed meanwhile.
// Errors: the system's, with the file's name; FAILED_PRECONDITION for a folder that others can
//   write to: what lies there may be theirs.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/descriptor.h"

namespace weft::tools {

class PrivateFolder {
 public:
  // Of a file that is read, in bytes: some certificates.
  static constexpr size_t kMaxFileBytes = size_t{64} << 10;

  // Makes it, for this user alone, if it is not there; what it is to be in has to be.
  static absl::StatusOr<PrivateFolder> Open(const std::string& path);

  bool Has(const std::string& name) const;
  absl::StatusOr<std::string> Read(const std::string& name) const;
  // A new file, with no rights but those of `mode` at any time. ALREADY_EXISTS: one has this name,
  // and is left as it is.
  absl::Status Write(const std::string& name, mode_t mode, std::string_view text) const;
  // The same, in the place of a file that may be there: who opens that name gets all of the old
  // one, or all of the new one.
  absl::Status Replace(const std::string& name, mode_t mode, std::string_view text) const;

 private:
  PrivateFolder(std::string path, Descriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  absl::Status Failed(const char* what, const std::string& name) const;

  std::string path_;  // as the user names it
  Descriptor descriptor_;
};

}  // namespace weft::tools
