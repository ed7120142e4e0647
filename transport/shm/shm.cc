#include "transport/shm/shm.h"

#include "core/status.h"
#include "core/strings.h"
#include "transport/shm/shm_domain.h"

namespace weft {
namespace {

constexpr uint64_t kMinSlotBytes = 256;     // less does not hold a frame worth sending
constexpr uint64_t kSlotAlignment = 64;     // no two slots share a cache line
constexpr uint64_t kMaxOperations = 65536;  // a table of some megabytes
constexpr uint64_t kMaxPoolBytes = uint64_t{1} << 40;

absl::Status CheckRange(const char* name, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("ShmOptions::", name, " is ", value, "; it must be ", low, "..", high));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LinkDomain>> OpenShmDomain(const ShmOptions& options) {
  if (options.sink == nullptr) return absl::InvalidArgumentError("ShmOptions::sink must be set");
  WEFT_RETURN_IF_ERROR(
      CheckRange("slot_bytes", options.slot_bytes, kMinSlotBytes, kMaxShmSlotBytes));
  if (options.slot_bytes % kSlotAlignment != 0) {
    return absl::InvalidArgumentError(StrCat("ShmOptions::slot_bytes is ", options.slot_bytes,
                                             "; a multiple of ", kSlotAlignment, " is needed"));
  }
  WEFT_RETURN_IF_ERROR(CheckRange("max_outstanding_operations", options.max_outstanding_operations,
                                  1, kMaxOperations));
  WEFT_RETURN_IF_ERROR(
      CheckRange("max_pool_bytes", options.max_pool_bytes, options.slot_bytes, kMaxPoolBytes));
  return ShmDomain::Open(options);
}

}  // namespace weft
