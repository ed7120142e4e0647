// libweft_rocksdb.so, for LD_PRELOAD: RocksDB's own programs know Weft's URIs.
//
//   LD_PRELOAD=libweft_rocksdb.so ldb --fs_uri=weft://10.0.0.7:7100 --db=/orders scan
//
// Programs that link RocksDB dynamically have its registry of objects in librocksdb.so, which this
// needs as well: so it is the same one.
//
// Weft's warnings go to the program's stderr, though others wrote it: RocksDB hears of errors, and
// of nothing else. (They are few, and hardly ever waited for: core/log.h. WEFT_LOG=off has none.)
#include "embed/rocksdb/weft_file_system.h"
#include "embed/rocksdb/weft_secondary_cache.h"

namespace {

__attribute__((constructor)) void Register() {
  weft::embed::RegisterWeftFileSystem();
  weft::embed::RegisterWeftSecondaryCache();
}

}  // namespace
