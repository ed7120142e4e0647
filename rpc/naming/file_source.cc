#include "rpc/naming/file_source.h"

#include "core/status.h"
#include "core/strings.h"
#include "rpc/naming/targets.h"
#include "rpc/operation/on_engine.h"
#include "transport/read_file.h"

namespace weft {

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
  if (!LookForChange(path_, &stamp_)) return;
  absl::StatusOr<std::vector<ListedServer>> servers = Read();
  if (servers.ok()) return host_->OnServers(*std::move(servers));
  // Whatever does not come of what stands in the file may pass: it is read again.
  if (!absl::IsInvalidArgument(servers.status())) stamp_.reset();
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
