#include "rpc/server/policy_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/log.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft {
namespace {

int64_t Nanoseconds(const timespec& time) {
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

// Of a file that is open.
absl::StatusOr<std::string> ReadAll(int file, const std::string& path) {
  struct stat found {};
  if (::fstat(file, &found) != 0) return StatusFromErrno(errno, StrCat("look at ", path));
  if (!S_ISREG(found.st_mode)) {
    return absl::InvalidArgumentError(StrCat(path, " is no regular file"));
  }
  std::string text(AccessPolicy::kMaxBytes + 1,
                   '\0');  // one more: Parse() sees that it is too long
  size_t bytes = 0;
  while (bytes < text.size()) {
    const ssize_t count = ::read(file, text.data() + bytes, text.size() - bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return StatusFromErrno(errno, StrCat("read ", path));
    if (count == 0) break;
    bytes += static_cast<size_t>(count);
  }
  text.resize(bytes);
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PolicyFile>> PolicyFile::Open(const std::string& path) {
  std::unique_ptr<PolicyFile> self(new PolicyFile(path));
  self->stamp_ = self->LookAtFile();  // before it is read: a later change is seen later
  WEFT_ASSIGN_OR_RETURN(AccessPolicy policy, self->Read());
  self->policy_ = std::make_shared<const AccessPolicy>(std::move(policy));
  return self;
}

PolicyFile::Stamp PolicyFile::LookAtFile() const {
  struct stat found {};
  if (::stat(path_.c_str(), &found) != 0) return {};
  return {Nanoseconds(found.st_mtim), Nanoseconds(found.st_ctim), found.st_ino, found.st_size};
}

absl::StatusOr<AccessPolicy> PolicyFile::Read() const {
  // A pipe of that name would keep a plain open(2) waiting.
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return StatusFromErrno(errno, StrCat("open policy file ", path_));
  absl::StatusOr<std::string> text = ReadAll(file, StrCat("policy file ", path_));
  ::close(file);
  WEFT_RETURN_IF_ERROR(text.status());
  absl::StatusOr<AccessPolicy> policy = AccessPolicy::Parse(*text);
  if (!policy.ok()) return Annotate(policy.status(), StrCat("policy file ", path_));
  return policy;
}

uint64_t PolicyFile::Generation(uint64_t now_ns) {
  uint64_t next_ns = next_look_ns_.load(std::memory_order_relaxed);
  if (now_ns >= next_ns && next_look_ns_.compare_exchange_strong(next_ns, now_ns + kLookIntervalNs,
                                                                 std::memory_order_relaxed)) {
    Renew();
  }
  return generation_.load(std::memory_order_acquire);
}

void PolicyFile::Renew() {
  absl::StatusOr<AccessPolicy> read;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Stamp stamp = LookAtFile();
    if (stamp == stamp_) return;
    stamp_ = stamp;  // one that cannot be used is not tried again before it changes
    read = Read();
    if (read.ok()) {
      policy_ = std::make_shared<const AccessPolicy>(*read);
      generation_.fetch_add(1, std::memory_order_release);
    }
  }
  if (read.ok()) {
    WEFT_LOG(kInfo, "policy file ", path_, " has changed: ", read->rules(), " rules are in use");
  } else {
    WEFT_LOG(kError, "a changed policy file cannot be used, the old rules stay in use: ",
             ToStd(read.status().message()));
  }
}

std::shared_ptr<const AccessPolicy> PolicyFile::policy() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return policy_;
}

Authorizer::Decision PolicyFile::Decide(const PathInfo& path, std::string_view service,
                                        std::string_view method) {
  return policy()->Decide(path.identity, service, method);
}

std::string PolicyFile::RuleText(uint32_t rule) const {
  return rule == 0 ? StrCat("no rule of ", path_, " allows it")
                   : StrCat("line ", rule, " of ", path_);
}

}  // namespace weft
