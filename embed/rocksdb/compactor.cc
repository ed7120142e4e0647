#include "embed/rocksdb/compactor.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "embed/rocksdb/compaction_names.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/table.h"

namespace weft::embed {
namespace {

// RocksDB's words name each table that it reads: some hundred bytes for each of some thousand.
constexpr uint64_t kMaxInputBytes = uint64_t{4} << 20;

absl::Status Check(const wire::CompactRequest& request) {
  const std::string_view database = request.database();
  if (database.empty() || database.find("..") != std::string_view::npos) {
    return absl::InvalidArgumentError("the path of a database is not empty and has no \"..\"");
  }
  if (!IsCompactionSession(request.session())) {
    return absl::InvalidArgumentError("a session's name has 1 to 64 letters and digits");
  }
  return absl::OkStatus();
}

// RocksDB has no table factory for a worker unless it is told.
rocksdb::CompactionServiceOptionsOverride WithTables(
    rocksdb::CompactionServiceOptionsOverride override) {
  if (override.table_factory == nullptr) {
    override.table_factory.reset(rocksdb::NewBlockBasedTableFactory());
  }
  return override;
}

}  // namespace

Compactor::Compactor(rocksdb::CompactionServiceOptionsOverride override, int jobs)
    : override_(WithTables(std::move(override))), max_jobs_(jobs), threads_(jobs + 1) {}

Compactor::~Compactor() { EndJobs(); }

void Compactor::LimitServer(ServerOptions* options) {
  options->max_outstanding_calls = kMaxJobs;
  options->max_request_bytes = kMaxInputBytes;
}

void Compactor::EndJobs() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopping_ = true;
  for (const std::shared_ptr<Job>& job : jobs_) job->canceled.store(true);
}

void Compactor::StartCompact(UnaryCall<wire::CompactRequest, wire::CompactReply> call) {
  if (absl::Status wrong = Check(call.request()); !wrong.ok()) return call.Finish(wrong);
  const auto job = std::make_shared<Job>();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return call.Finish(absl::UnavailableError("the worker is about to end"));
    if (static_cast<int>(jobs_.size()) >= max_jobs_) {
      return call.Finish(absl::ResourceExhaustedError(
          StrCat(max_jobs_, " compactions run here already; --jobs has more")));
    }
    jobs_.insert(job);
  }
  call.context().OnCancel([job] { job->canceled.store(true); });
  // One client has all threads but one, and there is one more than jobs: none waits.
  const uint64_t client = call.context().path().client;
  threads_.Run(client, [this, job, call = std::move(call)]() mutable {
    Run(std::move(call), std::move(job));
  });
}

void Compactor::Run(UnaryCall<wire::CompactRequest, wire::CompactReply> call,
                    std::shared_ptr<Job> job) {
  const wire::CompactRequest& request = call.request();
  RemoveLeftovers(request);
  rocksdb::OpenAndCompactOptions options;
  options.canceled = &job->canceled;
  const std::string folder =
      StrCat(request.database(), "/", CompactionFolder(request.session(), request.job()));
  std::string result;
  rocksdb::Status done = override_.env->CreateDirIfMissing(folder);
  if (done.ok()) {
    done = rocksdb::DB::OpenAndCompact(options, request.database(), folder, request.input(),
                                       &result, override_);
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.erase(job);
  }
  if (!done.ok()) {
    return call.Finish(absl::InternalError(StrCat("RocksDB: ", done.ToString())));
  }
  call.reply()->set_result(std::move(result));
  call.Finish(absl::OkStatus());
}

// As well as can be: what stays is tried again by the next job.
void Compactor::RemoveLeftovers(const wire::CompactRequest& request) const {
  rocksdb::Env& env = *override_.env;
  std::vector<std::string> names;
  if (!env.GetChildren(request.database(), &names).ok()) return;
  for (const std::string& name : names) {
    const std::optional<CompactionJob> job = ParseCompactionFolder(name);
    if (!job.has_value()) continue;
    const bool is_past = job->session != request.session();
    if (!is_past && std::find(request.ended_jobs().begin(), request.ended_jobs().end(),
                              job->number) == request.ended_jobs().end()) {
      continue;
    }
    const std::string folder = StrCat(request.database(), "/", name);
    std::vector<std::string> files;
    env.GetChildren(folder, &files).PermitUncheckedError();
    for (const std::string& file : files) {
      // Of this session, the database may be about to take it.
      if (!is_past && file.ends_with(".sst")) continue;
      env.DeleteFile(StrCat(folder, "/", file)).PermitUncheckedError();
    }
    env.DeleteDir(folder).PermitUncheckedError();
  }
}

}  // namespace weft::embed
