#include "transport/ofi/registration.h"

#include "absl/strings/str_cat.h"
#include "core/random.h"
#include "core/status.h"

namespace weft {
namespace {

// A collision of 64-bit random keys does not happen twice in a row.
constexpr int kMaxKeyDraws = 4;

uint64_t RightsOf(Access access) {
  constexpr uint64_t kLocal = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
  switch (access) {
    case Access::kLocalOnly:
      return kLocal;
    case Access::kRemoteRead:
      return kLocal | FI_REMOTE_READ;
    case Access::kRemoteWrite:
      return kLocal | FI_REMOTE_WRITE;
    case Access::kRemoteReadWrite:
      return kLocal | FI_REMOTE_READ | FI_REMOTE_WRITE;
  }
  return kLocal;
}

}  // namespace

absl::StatusOr<RegistrationPtr> Registrar::Open(MutableByteSpan memory, Access access) {
  int result = 0;
  for (int draw = 0; draw < kMaxKeyDraws; ++draw) {
    fid_mr* opened = nullptr;
    result = fi_mr_reg(domain_, memory.data(), memory.size(), RightsOf(access), /*offset=*/0,
                       SecureRandom64(), /*flags=*/0, &opened, /*context=*/nullptr);
    if (result == 0) {
      ++stats_->registrations;
      ++stats_->registrations_open;
      return RegistrationPtr(opened);
    }
    if (result != -FI_ENOKEY) break;
  }
  return FabricStatus(result, absl::StrCat("registering ", memory.size(),
                                           " bytes (if memory is locked: see ulimit -l)"));
}

void Registrar::Close(RegistrationPtr registration) {
  if (registration == nullptr) return;
  --stats_->registrations_open;
  registration.reset();
}

FabricRegion::FabricRegion(Registrar* registrar, RegistrationPtr registration,
                           MutableByteSpan memory)
    : Region(memory, RemoteSpan{fi_mr_key(registration.get()), 0, memory.size()}),
      registrar_(registrar),
      registration_(std::move(registration)) {}

}  // namespace weft
