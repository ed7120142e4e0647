#include "transport/shm/link_memory.h"

#include "core/status.h"

namespace weft {
namespace {

constexpr uint64_t kMagic = 0x32474e4954464557;  // "WEFTING2"

}  // namespace

absl::StatusOr<int> LinkMemory::Create() {
  WEFT_ASSIGN_OR_RETURN(SealedMemory memory,
                        SealedMemory::Create("weft-link", sizeof(SharedLinkMemory)));
  reinterpret_cast<SharedLinkMemory*>(memory.data())->magic = kMagic;
  return memory.ReleaseDescriptor();
}

absl::StatusOr<LinkMemory> LinkMemory::Open(int descriptor) {
  WEFT_ASSIGN_OR_RETURN(SealedMemory memory,
                        SealedMemory::Open(descriptor, sizeof(SharedLinkMemory)));
  if (reinterpret_cast<const SharedLinkMemory*>(memory.data())->magic != kMagic) {
    return absl::InvalidArgumentError("a peer's memory for a link has another layout");
  }
  return LinkMemory(std::move(memory));
}

}  // namespace weft
