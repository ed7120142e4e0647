#include "rpc/naming/file_source.h"

#include <sys/stat.h>

#include <ctime>

#include "core/status.h"
#include "core/strings.h"
#include "rpc/naming/targets.h"
#include "rpc/operation/on_engine.h"
#include "transport/read_file.h"

namespace weft {
namespace {

uint64_t Nanoseconds(const timespec& time) {
  return static_cast<uint64_t>(time.tv_sec) * kNsPerSec + static_cast<uint64_t>(time.tv_nsec);
}

// What has changed so lately may change again without a new time: that has the kernel's ticks, or
// on some file systems seconds.
bool IsYoung(uint64_t changed_ns) {
  constexpr uint64_t kYoungNs = 2 * kNsPerSec;
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return Nanoseconds(now) < changed_ns + kYoungNs;
}

}  // namespace

void FileSource::Start(EngineCore& engine, Host* host, uint64_t refresh_us) {
  engine_ = &engine;
  host_ = host;
  refresh_us_ = refresh_us;
  engine.timers().Schedule(this, 0);
}

void FileSource::OnTimer() {
  ScheduleIn(*engine_, *this, refresh_us_);
  Look();
}

void FileSource::Look() {
  struct stat facts = {};
  Version version;
  if (stat(path_.c_str(), &facts) == 0) {
    version = {facts.st_dev, facts.st_ino, static_cast<uint64_t>(facts.st_size),
               Nanoseconds(facts.st_ctim)};
  }
  if (looked_ && version == version_) return;
  version_ = version;
  absl::StatusOr<std::vector<ListedServer>> servers = Read();
  // Whatever does not come of what stands in the file may pass: it is read again.
  looked_ =
      !IsYoung(version.changed_ns) && (servers.ok() || absl::IsInvalidArgument(servers.status()));
  if (servers.ok()) return host_->OnServers(*std::move(servers));
  host_->OnSourceFailed(servers.status());
}

absl::StatusOr<std::vector<ListedServer>> FileSource::Read() const {
  const std::string name = StrCat("the list of servers ", path_);
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path_, kMaxBytes, name));
  absl::StatusOr<std::vector<ListedServer>> servers = ParseServerList(text, "\n");
  if (!servers.ok()) return Annotate(servers.status(), path_);
  if (servers->empty()) {
    return absl::UnavailableError(StrCat(name, " names none"));
  }
  return servers;
}

}  // namespace weft
