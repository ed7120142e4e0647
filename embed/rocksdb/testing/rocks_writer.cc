// rocks_writer URI DB [COMPACTOR]: writes keys without end, each with a sync, and prints its number
// when RocksDB has answered; compactions run at COMPACTOR, if there is one. By linking RocksDB and
// the plugin: without preloading.
//
// Values are the key's number, as often as it fits into 1000 bytes: enough for many flushes and
// compactions of a write buffer of 64 KiB. Exit status: 1 if a write failed.
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "embed/rocksdb/weft_compaction.h"
#include "embed/rocksdb/weft_file_system.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"

namespace {

rocksdb::Status Put(rocksdb::DB& db, const rocksdb::WriteOptions& options, uint64_t number) {
  char key[24];
  std::snprintf(key, sizeof(key), "%012" PRIu64, number);
  std::string value;
  while (value.size() < 1000) value += key;
  return db.Put(options, key, value);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  weft::embed::RegisterWeftFileSystem();
  std::shared_ptr<rocksdb::FileSystem> files;
  rocksdb::Status status =
      rocksdb::FileSystem::CreateFromString(rocksdb::ConfigOptions(), argv[1], &files);
  rocksdb::DB* opened = nullptr;
  const std::unique_ptr<rocksdb::Env> env = status.ok() ? rocksdb::NewCompositeEnv(files) : nullptr;
  rocksdb::Options options;
  options.create_if_missing = true;
  options.write_buffer_size = 64 << 10;
  options.level0_file_num_compaction_trigger = 2;
  options.target_file_size_base = 128 << 10;
  options.compression = rocksdb::kNoCompression;
  options.env = env.get();
  if (argc == 4) {
    const auto compaction = weft::embed::OpenWeftCompaction(argv[3]);
    if (!compaction.ok()) {
      std::fprintf(stderr, "rocks_writer: %s\n", compaction.status().ToString().c_str());
      return 1;
    }
    options.compaction_service = *compaction;
  }
  if (status.ok()) status = rocksdb::DB::Open(options, argv[2], &opened);
  const std::unique_ptr<rocksdb::DB> db(opened);
  rocksdb::WriteOptions sync;
  sync.sync = true;
  for (uint64_t i = 0; status.ok(); ++i) {
    // The first one again in each table, so that compactions have something to merge.
    if (i % 32 == 0) status = Put(*db, sync, 0);
    if (status.ok()) status = Put(*db, sync, i);
    if (!status.ok()) break;
    std::printf("%" PRIu64 "\n", i);
    std::fflush(stdout);
  }
  std::fprintf(stderr, "rocks_writer: %s\n", status.ToString().c_str());
  return 1;
}
