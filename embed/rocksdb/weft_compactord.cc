// weft_compactord --files=weft://HOST:PORT/FOLDER: compacts databases that lie there for the
// processes that have them open (weft_compaction.h), until SIGINT or SIGTERM.
//
// It knows RocksDB's own comparator and block-based tables only (--table_options). A database with
// operators or filters of its own needs a worker of its own: a Compactor (compactor.h) in a program
// that has them. A kill loses the compactions that ran; who asked for them runs them by itself.
// What it says and how it ends: embed/server_program.h.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "core/status.h"
#include "core/strings.h"
#include "embed/rocksdb/compactor.h"
#include "embed/rocksdb/weft_file_system.h"
#include "embed/server_program.h"
#include "rocksdb/convenience.h"
#include "rocksdb/env.h"
#include "rocksdb/table.h"

ABSL_FLAG(std::string, files, "", "where the databases are: weft://HOST:PORT[/FOLDER][?OPTIONS]");
ABSL_FLAG(std::string, table_options, "",
          "how tables are made, as the databases have it: block_size=8192;filter_policy="
          "bloomfilter:10:false (RocksDB's BlockBasedTableOptions)");
ABSL_FLAG(int, jobs, 2, "compactions at once, each with a core to itself at best");

namespace weft::embed {
namespace {

class ServedCompactor final : public Served {
 public:
  ServedCompactor(std::shared_ptr<rocksdb::FileSystem> files,
                  const rocksdb::BlockBasedTableOptions& tables)
      : env_(rocksdb::NewCompositeEnv(std::move(files))),
        compactor_(OverrideWith(env_.get(), tables), absl::GetFlag(FLAGS_jobs)) {}
  absl::Status AddTo(Server& server) override { return server.AddService(&compactor_); }
  void End() override { compactor_.EndJobs(); }

 private:
  static rocksdb::CompactionServiceOptionsOverride OverrideWith(
      rocksdb::Env* env, const rocksdb::BlockBasedTableOptions& tables) {
    rocksdb::CompactionServiceOptionsOverride result;
    result.env = env;
    result.table_factory.reset(rocksdb::NewBlockBasedTableFactory(tables));
    return result;
  }

  const std::unique_ptr<rocksdb::Env> env_;
  Compactor compactor_;
};

absl::StatusOr<rocksdb::BlockBasedTableOptions> TableOptions() {
  rocksdb::BlockBasedTableOptions result;
  const rocksdb::Status parsed = rocksdb::GetBlockBasedTableOptionsFromString(
      rocksdb::ConfigOptions(), {}, absl::GetFlag(FLAGS_table_options), &result);
  if (parsed.ok()) return result;
  return absl::InvalidArgumentError(StrCat("--table_options: ", parsed.ToString()));
}

absl::Status Check(const std::vector<std::string>& words) {
  if (!words.empty()) return absl::InvalidArgumentError("takes flags only");
  const int jobs = absl::GetFlag(FLAGS_jobs);
  if (jobs < 1 || jobs > Compactor::kMaxJobs) {
    return absl::InvalidArgumentError(StrCat("--jobs: 1 to ", Compactor::kMaxJobs));
  }
  if (absl::GetFlag(FLAGS_files).empty()) {
    return absl::InvalidArgumentError("--files is needed: where the databases are");
  }
  return TableOptions().status();
}

absl::StatusOr<std::unique_ptr<Served>> Open(const std::vector<std::string>&, Engine&,
                                             BufferPool&) {
  WEFT_ASSIGN_OR_RETURN(const rocksdb::BlockBasedTableOptions tables, TableOptions());
  WEFT_ASSIGN_OR_RETURN(auto files, OpenWeftFileSystem(absl::GetFlag(FLAGS_files)));
  return std::make_unique<ServedCompactor>(std::move(files), tables);
}

}  // namespace
}  // namespace weft::embed

int main(int argc, char** argv) {
  return weft::embed::RunServerProgram(
      argc, argv,
      {.name = "weft_compactord",
       .usage = "weft_compactord --files=weft://HOST:PORT/FOLDER: compactions of RocksDB's "
                "databases there, for those who have them open (docs/embedding.md)",
       .check = weft::embed::Check,
       .limit = weft::embed::Compactor::LimitServer,
       .open = weft::embed::Open});
}
