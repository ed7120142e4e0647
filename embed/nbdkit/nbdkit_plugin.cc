// nbdkit's plugin "weft": a block device of a weft_blockd, to every client of NBD.
//
//   nbdkit nbdkit-weft-plugin.so server=10.0.0.7:7000
//
// nbdkit's connections share one BlockVolume (block_volume.h), and so one connection of Weft: each
// thread of nbdkit that serves a request waits in it, and drives it meanwhile. A flush on one
// connection covers what was answered on all, so clients may open several (can_multi_conn).
//
// States, as nbdkit calls: config() for each parameter; get_ready(), which checks them while the
// user still looks, before nbdkit forks and goes to "/"; after_fork(), which connects, because
// neither an engine nor a connection survives a fork; then open() to close() for each connection,
// on many threads; cleanup().
//
// Errors: an operation that fails says why in nbdkit's log, and has an errno for the client. What
//   Weft warns of stands there as well, as an error.
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "embed/nbdkit/block_volume.h"
#include "weft/log.h"
#include "weft/path.h"
#include "weft/security.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

namespace weft::embed {
namespace {

// An hour: nobody waits longer for a disk.
constexpr unsigned kMaxPatienceSeconds = 3600;

struct Plugin {
  BlockVolumeOptions options;
  std::vector<std::string> security_flags;
  std::unique_ptr<BlockVolume> volume;
};

Plugin& ThePlugin() {
  static auto* const plugin = new Plugin;
  return *plugin;
}

// One connection of nbdkit's.
struct Handle {
  BlockVolume& volume;
  uint64_t losses;  // BlockVolume::losses() that its client has heard of
};

Handle& HandleOf(void* handle) { return *static_cast<Handle*>(handle); }

int ErrnoOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return EINVAL;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return EPERM;
    case absl::StatusCode::kFailedPrecondition:
      return ENOSPC;
    case absl::StatusCode::kUnimplemented:
      return EOPNOTSUPP;
    default:
      return EIO;
  }
}

int Failed(const absl::Status& status) {
  nbdkit_error("weft: %s", std::string(status.message()).c_str());
  return -1;
}

// What a callback returns for it.
int Report(const absl::Status& status) {
  if (status.ok()) return 0;
  const int error = ErrnoOf(status);
  // nbdkit asks, and does it in another way.
  if (error != EOPNOTSUPP) Failed(status);
  nbdkit_set_error(error);
  return -1;
}

// --- before the fork -----------------------------------------------------------------------------

// "tls-key" and its value, as the flag of Weft's programs that it is. nbdkit changes to "/".
int ConfigSecurity(const std::string& key, const char* value) {
  const bool is_file =
      key == "tls-certificate" || key == "tls-key" || key == "tls-roots" || key == "tls-psk-file";
  const bool is_switch =
      key == "tls-any-client" || key == "tls-require-encryption" || key == "tls-kernel";
  if (is_switch) {
    const int on = nbdkit_parse_bool(value);
    if (on > 0) ThePlugin().security_flags.push_back("--" + key);
    return on < 0 ? -1 : 0;
  }
  std::string text = value;
  if (is_file) {
    char* const path = nbdkit_realpath(value);
    if (path == nullptr) return -1;
    text = path;
    std::free(path);
  }
  ThePlugin().security_flags.push_back("--" + key + "=" + text);
  return 0;
}

int Config(const char* key, const char* value) {
  BlockVolumeOptions& options = ThePlugin().options;
  const std::string_view name = key;
  if (name == "server") {
    options.address = value;
  } else if (name == "paths") {
    absl::StatusOr<std::vector<PathKind>> paths = ParsePathList(value);
    if (!paths.ok()) return Failed(paths.status());
    options.channel.link.paths = *std::move(paths);
  } else if (name == "patience") {
    unsigned seconds = 0;
    if (nbdkit_parse_unsigned("patience", value, &seconds) < 0) return -1;
    if (seconds < 1 || seconds > kMaxPatienceSeconds) {
      nbdkit_error("weft: patience=%u: must be 1 to %u seconds", seconds, kMaxPatienceSeconds);
      return -1;
    }
    options.patience_us = uint64_t{1'000'000} * seconds;
  } else if (name == "crc32c") {
    const int on = nbdkit_parse_bool(value);
    if (on < 0) return -1;
    options.crc32c = on != 0;
  } else if (name.starts_with("tls-")) {
    return ConfigSecurity(key, value);
  } else {
    nbdkit_error("weft: unknown parameter \"%s\"", key);
    return -1;
  }
  return 0;
}

int ConfigComplete() {
  if (!ThePlugin().options.address.empty()) return 0;
  nbdkit_error("weft: server=ADDRESS is needed: where weft_blockd listens");
  return -1;
}

int GetReady() {
  Plugin& plugin = ThePlugin();
  absl::StatusOr<std::optional<SecurityOptions>> security =
      TakeSecurityFlags(&plugin.security_flags);
  if (!security.ok()) return Failed(security.status());
  if (!plugin.security_flags.empty()) {
    nbdkit_error("weft: %s: there is no such flag", plugin.security_flags.front().c_str());
    return -1;
  }
  plugin.options.channel.security = *std::move(security);
  return 0;
}

// --- after the fork ------------------------------------------------------------------------------

// Into nbdkit's log, which is syslog where nbdkit has gone to the background. It has no level
// between an error and what `nbdkit -v` shows.
void LogToNbdkit(const LogRecord& record) {
  const std::string level(LogLevelName(record.level));
  const std::string text(record.text);
  if (record.level >= LogLevel::kWarning) {
    nbdkit_error("weft %s: %s", level.c_str(), text.c_str());
  } else {
    nbdkit_debug("weft %s: %s", level.c_str(), text.c_str());
  }
}

int AfterFork() {
  SetLogSink(LogToNbdkit);
  auto volume = BlockVolume::Open(ThePlugin().options);
  if (!volume.ok()) return Failed(volume.status());
  ThePlugin().volume = *std::move(volume);
  nbdkit_debug("weft: %s", ThePlugin().volume->Explain().c_str());
  return 0;
}

void Cleanup() { ThePlugin().volume.reset(); }

void* OpenHandle(int) {
  BlockVolume& volume = *ThePlugin().volume;
  return new Handle{volume, volume.losses()};
}

void CloseHandle(void* handle) { delete static_cast<Handle*>(handle); }

int64_t GetSize(void* handle) {
  return static_cast<int64_t>(HandleOf(handle).volume.facts().bytes);
}

int CanWrite(void* handle) { return HandleOf(handle).volume.facts().read_only ? 0 : 1; }
int IsRotational(void* handle) { return HandleOf(handle).volume.facts().rotational ? 1 : 0; }
int Can(void*) { return 1; }
int CanFua(void*) { return NBDKIT_FUA_NATIVE; }

[[maybe_unused]] int BlockSize(void* handle, uint32_t* minimum, uint32_t* preferred,
                               uint32_t* maximum) {
  *minimum = 1;
  *preferred = HandleOf(handle).volume.facts().preferred_bytes;
  *maximum = 0xffffffff;
  return 0;
}

int Pread(void* handle, void* into, uint32_t count, uint64_t offset, uint32_t) {
  return Report(
      HandleOf(handle).volume.Read(offset, {static_cast<std::byte*>(into), size_t{count}}));
}

int Pwrite(void* handle, const void* from, uint32_t count, uint64_t offset, uint32_t flags) {
  return Report(HandleOf(handle).volume.Write(offset,
                                              {static_cast<const std::byte*>(from), size_t{count}},
                                              (flags & NBDKIT_FLAG_FUA) != 0));
}

int Flush(void* handle, uint32_t) {
  return Report(HandleOf(handle).volume.Flush(&HandleOf(handle).losses));
}

int Trim(void* handle, uint32_t count, uint64_t offset, uint32_t flags) {
  return Report(HandleOf(handle).volume.Trim(offset, count, (flags & NBDKIT_FLAG_FUA) != 0));
}

// Fast, or EOPNOTSUPP; but the system may write the zeros of a raw device itself, unless they may
// be trimmed.
int Zero(void* handle, uint32_t count, uint64_t offset, uint32_t flags) {
  return Report(HandleOf(handle).volume.Zero(offset, count, (flags & NBDKIT_FLAG_MAY_TRIM) != 0,
                                             (flags & NBDKIT_FLAG_FUA) != 0));
}

int Extents(void* handle, uint32_t count, uint64_t offset, uint32_t flags,
            nbdkit_extents* extents) {
  const uint32_t most = (flags & NBDKIT_FLAG_REQ_ONE) != 0 ? 1 : UINT32_MAX;
  const auto found = HandleOf(handle).volume.Extents(offset, count, most);
  if (!found.ok()) return Report(found.status());
  for (const BlockDevice::Extent& extent : *found) {
    const uint32_t type = extent.is_hole ? NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO : 0;
    if (nbdkit_add_extent(extents, offset, extent.bytes, type) < 0) return -1;
    offset += extent.bytes;
  }
  return 0;
}

constexpr char kConfigHelp[] =
    "server=ADDRESS       (required) where weft_blockd listens: host:port or unix:/path\n"
    "paths=LIST           shm,verbs,tcp: these only, in this order\n"
    "patience=SECONDS     how long an operation goes on without its server (30)\n"
    "crc32c=BOOL          checksums of large payloads (true)\n"
    "tls-NAME=VALUE       Weft's flags for TLS: tls-certificate=FILE, tls-key=FILE,\n"
    "                     tls-roots=FILE, tls-name=NAME, tls-uri=URI, tls-psk-name=NAME,\n"
    "                     tls-psk-file=FILE, tls-require-encryption=BOOL,\n"
    "                     tls-kernel=BOOL";

nbdkit_plugin MakePlugin() {
  nbdkit_plugin plugin = {};
  plugin.name = "weft";
  plugin.longname = "blocks over Weft";
  plugin.description =
      "a file or block device that weft_blockd serves, by shared memory, RDMA or TCP";
  plugin.magic_config_key = "server";
  plugin.config_help = kConfigHelp;
  plugin.config = Config;
  plugin.config_complete = ConfigComplete;
  plugin.get_ready = GetReady;
  plugin.after_fork = AfterFork;
  plugin.cleanup = Cleanup;
  plugin.open = OpenHandle;
  plugin.close = CloseHandle;
  plugin.get_size = GetSize;
  plugin.can_write = CanWrite;
  plugin.can_flush = Can;
  plugin.can_trim = Can;
  plugin.can_zero = Can;
  plugin.can_fast_zero = Can;
  plugin.can_extents = Can;
  plugin.can_multi_conn = Can;
  plugin.can_fua = CanFua;
  plugin.is_rotational = IsRotational;
#if NBDKIT_VERSION_MAJOR > 1 || NBDKIT_VERSION_MINOR >= 30  // Ubuntu 22.04 has an older one
  plugin.block_size = BlockSize;
#endif
  plugin.pread = Pread;
  plugin.pwrite = Pwrite;
  plugin.flush = Flush;
  plugin.trim = Trim;
  plugin.zero = Zero;
  plugin.extents = Extents;
  return plugin;
}

nbdkit_plugin the_plugin = MakePlugin();

}  // namespace
}  // namespace weft::embed

NBDKIT_REGISTER_PLUGIN(weft::embed::the_plugin)
