// An Authorizer out of a file with rules (access_policy.h says what they look like).
//
//   auto policy = weft::PolicyFile::Open("/etc/kv.policy");
//   if (!policy.ok()) return policy.status();
//   auto server = weft::Server::Create({.authorizer = policy->get()});
//
// The file is looked at (stat(2)) while calls come, at most once in kLookIntervalNs. A changed one
// takes effect with the next call, for connections that there are as well; calls that run go on.
// One that cannot be used changes nothing: the old rules stay in use, and the log says why, once.
// Replace the file by rename(2): while it is written in place, half of it may be read.
// One engine looks and reads for all, and meanwhile the others use the old rules: a file system
// that hangs (NFS without its server) holds up that engine, and no other.
//
// Threads: any, several at once. The clocks of the engines that use it are one clock.
// Errors: of Open(): NOT_FOUND, PERMISSION_DENIED, ... for a file that cannot be read;
//   INVALID_ARGUMENT for one that is too large, no regular file, or wrong, with its line.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "rpc/server/access_policy.h"
#include "rpc/server/authorizer.h"
#include "transport/file_stamp.h"
#include "transport/path.h"

namespace weft {

class PolicyFile final : public Authorizer {
 public:
  // A person who changes the file does not notice a second; a look takes a microsecond or two.
  static constexpr uint64_t kLookIntervalNs = 1'000'000'000;

  static absl::StatusOr<std::unique_ptr<PolicyFile>> Open(const std::string& path);

  Decision Decide(const PathInfo& path, std::string_view service, std::string_view method) override;
  uint64_t Generation(uint64_t now_ns) override;
  std::string RuleText(uint32_t rule) const override;
  // The rules in use allow no call to anybody, which hardly anybody wants: say so where the program
  // starts. (The log does, each time that such rules are read.)
  bool PermitsNothing() const { return policy()->PermitsNothing(); }

 private:
  static constexpr uint64_t kLooking = ~uint64_t{0};

  explicit PolicyFile(const std::string& path) : path_(path) {}

  absl::StatusOr<std::string> Read() const;
  absl::StatusOr<AccessPolicy> Parse(const absl::StatusOr<std::string>& text) const;
  void Renew();
  void WarnIfItPermitsNothing() const;
  std::shared_ptr<const AccessPolicy> policy() const;

  const std::string path_;
  std::atomic<uint64_t> next_look_ns_{0};  // kLooking: somebody does, and stamp_ and text_ are his
  std::atomic<uint64_t> generation_{1};    // counts what was read; written with mutex_ held
  std::optional<FileStamp> stamp_;         // none: read it again
  absl::StatusOr<std::string> text_;       // what was read last, or why not
  mutable std::mutex mutex_;               // held for no longer than it takes to copy a pointer
  std::shared_ptr<const AccessPolicy> policy_;  // guarded by mutex_
};

}  // namespace weft
