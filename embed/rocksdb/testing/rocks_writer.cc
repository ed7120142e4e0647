// rocks_writer URI DB: writes keys without end, each with a sync, and prints its number when
// RocksDB has answered. By linking RocksDB and the plugin: without preloading.
//
// Values are the key's number, as often as it fits into 1000 bytes: enough for many flushes and
// compactions of a write buffer of 64 KiB. Exit status: 1 if a write failed.
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "embed/rocksdb/weft_file_system.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
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
  if (status.ok()) status = rocksdb::DB::Open(options, argv[2], &opened);
  const std::unique_ptr<rocksdb::DB> db(opened);
  rocksdb::WriteOptions sync;
  sync.sync = true;
  for (uint64_t i = 0; status.ok(); ++i) {
    char key[24];
    std::snprintf(key, sizeof(key), "%012" PRIu64, i);
    std::string value;
    while (value.size() < 1000) value += key;
    status = db->Put(sync, key, value);
    if (!status.ok()) break;
    std::printf("%" PRIu64 "\n", i);
    std::fflush(stdout);
  }
  std::fprintf(stderr, "rocks_writer: %s\n", status.ToString().c_str());
  return 1;
}
