#include "transport/ofi/options.h"

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace weft {
namespace {

constexpr uint64_t kMinSlotBytes = 256;      // less does not hold a frame worth sending
constexpr uint64_t kMaxSlotBytes = 1 << 20;  // larger data belongs in one-sided transfers
constexpr uint64_t kSlotAlignment = 64;      // no two slots share a cache line
constexpr uint64_t kMaxOperations = 65536;   // a table of some megabytes
constexpr uint64_t kMaxPoolBytes = uint64_t{1} << 40;

absl::Status CheckRange(const char* name, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, "=", value, " is not within ", low, "..", high));
}

}  // namespace

absl::Status CheckOptions(const OfiOptions& options) {
  if (options.sink == nullptr) return absl::InvalidArgumentError("sink must be set");
  WEFT_RETURN_IF_ERROR(CheckRange("slot_bytes", options.slot_bytes, kMinSlotBytes, kMaxSlotBytes));
  if (options.slot_bytes % kSlotAlignment != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot_bytes=", options.slot_bytes, " is not a multiple of ", kSlotAlignment));
  }
  WEFT_RETURN_IF_ERROR(CheckRange("max_outstanding_operations", options.max_outstanding_operations,
                                  1, kMaxOperations));
  return CheckRange("max_pool_bytes", options.max_pool_bytes, options.slot_bytes, kMaxPoolBytes);
}

}  // namespace weft
