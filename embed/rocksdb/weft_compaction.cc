#include "embed/rocksdb/weft_compaction.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "embed/rocksdb/compaction.weft.h"
#include "embed/rocksdb/compaction_names.h"
#include "embed/rocksdb/weft_uri.h"
#include "weft/channel.h"
#include "weft/log.h"

namespace weft::embed {
namespace {

using rocksdb::CompactionServiceJobInfo;
using rocksdb::CompactionServiceJobStatus;
using std::chrono::steady_clock;

constexpr uint64_t kDefaultDeadlineSeconds = 600;
constexpr uint64_t kMaxDeadlineSeconds = 86'400;
// RocksDB takes a job's tables over as soon as it has the answer, by renaming: milliseconds, and
// some seconds on a server that is busy.
constexpr std::chrono::seconds kTakenOver(60);
// Of jobs that are over, in memory: more than one minute has.
constexpr size_t kMaxEndedJobs = 1024;

// RocksDB renames what a worker names before it looks at it: so it may name tables in the folder of
// its job, and nothing else. The words are those of RocksDB's text of options.
bool IsOfJob(std::string_view result, const wire::CompactRequest& request) {
  constexpr std::string_view kPath = "output_path";
  constexpr std::string_view kFile = "file_name";
  const std::string folder =
      StrCat("=", request.database(), "/", CompactionFolder(request.session(), request.job()), ";");
  size_t paths = 0;
  for (size_t at = result.find(kPath); at != std::string_view::npos;
       at = result.find(kPath, at + 1), ++paths) {
    if (!result.substr(at + kPath.size()).starts_with(folder)) return false;
  }
  for (size_t at = result.find(kFile); at != std::string_view::npos;
       at = result.find(kFile, at + 1)) {
    std::string_view rest = result.substr(at + kFile.size());
    if (!rest.starts_with('=')) return false;
    rest.remove_prefix(1);
    const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    rest.remove_prefix(digits);
    if (digits == 0 || !(rest.starts_with(".sst;") || rest.starts_with(".sst}"))) return false;
  }
  return paths == 1;
}

class WeftCompaction final : public rocksdb::CompactionService {
 public:
  WeftCompaction(std::unique_ptr<Channel> channel, uint64_t deadline_us)
      : channel_(std::move(channel)), stub_(*channel_), deadline_us_(deadline_us) {}

  static const char* kClassName() { return "WeftCompaction"; }
  const char* Name() const override { return kClassName(); }

  CompactionServiceJobStatus StartV2(const CompactionServiceJobInfo& info,
                                     const std::string& input) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    wire::CompactRequest& request = waiting_[KeyOf(info)];
    request.set_database(info.db_name);
    request.set_session(info.db_session_id);
    request.set_job(info.job_id);
    request.set_input(input);
    return CompactionServiceJobStatus::kSuccess;
  }

  // The thread of the compaction, which has called StartV2() just before.
  CompactionServiceJobStatus WaitForCompleteV2(const CompactionServiceJobInfo& info,
                                               std::string* result) override {
    const std::optional<wire::CompactRequest> request = Take(info);
    if (!request.has_value()) return CompactionServiceJobStatus::kUseLocal;  // it was not started
    wire::CompactReply reply;
    const absl::Status status = stub_.Compact(*request, &reply, {.timeout_us = deadline_us_});
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ended_.push_back({info.db_session_id, info.job_id, steady_clock::now()});
      if (ended_.size() > kMaxEndedJobs) ended_.pop_front();
    }
    if (!status.ok()) {
      WEFT_LOG_EVERY_N_SEC(kWarning, 1, "compaction ", info.job_id, " of ", info.db_name,
                           " runs here: ", status.ToString());
      return CompactionServiceJobStatus::kUseLocal;
    }
    if (!IsOfJob(reply.result(), *request)) {
      WEFT_LOG_EVERY_N_SEC(kWarning, 1, "compaction ", info.job_id, " of ", info.db_name,
                           " runs here: the worker names files that are not the job's");
      return CompactionServiceJobStatus::kUseLocal;
    }
    *result = std::move(*reply.mutable_result());
    return CompactionServiceJobStatus::kSuccess;
  }

 private:
  using Key = std::pair<std::string, uint64_t>;  // session, job
  struct Ended {
    std::string session;
    uint64_t job = 0;
    steady_clock::time_point at;
  };

  static Key KeyOf(const CompactionServiceJobInfo& info) {
    return {info.db_session_id, info.job_id};
  }

  // With the session's jobs that are over, which are told once: what a worker did not remove goes
  // with the session.
  std::optional<wire::CompactRequest> Take(const CompactionServiceJobInfo& info) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto node = waiting_.extract(KeyOf(info));
    if (node.empty()) return std::nullopt;
    wire::CompactRequest request = std::move(node.mapped());
    const steady_clock::time_point settled = steady_clock::now() - kTakenOver;
    std::erase_if(ended_, [&](const Ended& ended) {
      if (ended.session != info.db_session_id || ended.at > settled) return false;
      request.add_ended_jobs(ended.job);
      return true;
    });
    return request;
  }

  const std::unique_ptr<Channel> channel_;
  const wire::Compactor::Stub stub_;
  const uint64_t deadline_us_;

  std::mutex mutex_;
  std::map<Key, wire::CompactRequest> waiting_;  // guarded by mutex_
  std::deque<Ended> ended_;                      // guarded by mutex_
};

absl::StatusOr<uint64_t> DeadlineUs(const std::string& text) {
  uint64_t seconds = kDefaultDeadlineSeconds;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (!text.empty() && (error != std::errc() || end != text.data() + text.size() || seconds < 1 ||
                        seconds > kMaxDeadlineSeconds)) {
    return absl::InvalidArgumentError(
        StrCat("\"deadline:", text, "\" in a URI of Weft: 1 to ", kMaxDeadlineSeconds, " seconds"));
  }
  return 1'000'000 * seconds;
}

}  // namespace

absl::StatusOr<std::shared_ptr<rocksdb::CompactionService>> OpenWeftCompaction(
    const std::string& uri) {
  WEFT_ASSIGN_OR_RETURN(WeftUri where, ParseWeftUri("weft-compactor", uri, {"deadline"}));
  if (!where.folder.empty()) {
    return absl::InvalidArgumentError(
        StrCat("\"/", where.folder,
               "\" in a URI of Weft: a worker has no folders; its --files says where they are"));
  }
  WEFT_ASSIGN_OR_RETURN(const uint64_t deadline_us, DeadlineUs(where.own["deadline"]));
  where.channel.connect_at_once = false;
  WEFT_ASSIGN_OR_RETURN(auto channel, Channel::Open(where.address, where.channel));
  return std::make_shared<WeftCompaction>(std::move(channel), deadline_us);
}

}  // namespace weft::embed
