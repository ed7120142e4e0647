#include "transport/ofi/registration.h"

#include "absl/strings/str_cat.h"
#include "core/random.h"
#include "core/status.h"

namespace weft {
namespace {

// A collision of 64-bit random keys does not happen twice in a row.
constexpr int kMaxKeyDraws = 4;

constexpr uint64_t kForMessages = FI_SEND | FI_RECV;

uint64_t RightsOf(Access access) {
  constexpr uint64_t kLocal = kForMessages | FI_READ | FI_WRITE;
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
  const uint64_t withheld = NeedsSink(access) ? FI_READ : 0;
  return OpenWith(memory, RightsOf(access) & ~withheld);
}

absl::StatusOr<RegistrationPtr> Registrar::OpenForMessages(MutableByteSpan memory) {
  return OpenWith(memory, kForMessages);
}

absl::StatusOr<RegistrationPtr> Registrar::OpenWith(MutableByteSpan memory, uint64_t rights) {
  int result = 0;
  for (int draw = 0; draw < kMaxKeyDraws; ++draw) {
    fid_mr* opened = nullptr;
    result = fi_mr_reg(domain_, memory.data(), memory.size(), rights, /*offset=*/0,
                       SecureRandom64(), /*flags=*/0, &opened, /*context=*/nullptr);
    if (result == 0) {
      ++stats_->registrations;
      ++stats_->registrations_open;
      return RegistrationPtr(opened);
    }
    if (result != -FI_ENOKEY) break;
  }
  return FabricStatus(result,
                      absl::StrCat("registering ", memory.size(), " bytes", LockedMemoryHint()));
}

void Registrar::Close(RegistrationPtr registration) {
  if (registration == nullptr) return;
  --stats_->registrations_open;
  registration.reset();
}

absl::StatusOr<std::unique_ptr<FabricRegion>> FabricRegion::Open(Registrar* registrar,
                                                                 MutableByteSpan memory,
                                                                 Access access) {
  WEFT_ASSIGN_OR_RETURN(RegistrationPtr registration, registrar->Open(memory, access));
  return std::unique_ptr<FabricRegion>(
      new FabricRegion(registrar, std::move(registration), memory, access));
}

FabricRegion::FabricRegion(Registrar* registrar, RegistrationPtr registration,
                           MutableByteSpan memory, Access access)
    : Region(memory,
             RemoteSpan{fi_mr_key(registration.get()), registrar->BaseOf(memory), memory.size()}),
      registrar_(registrar),
      access_(access),
      registration_(std::move(registration)) {}

FabricRegion::~FabricRegion() { Close(); }

void FabricRegion::Close() {
  registrar_->Close(std::move(registration_));
  registrar_->Close(std::move(sink_));
}

absl::StatusOr<void*> FabricRegion::SinkDescriptor() const {
  if (!registrar_->NeedsSink(access_)) return source_descriptor();
  if (sink_ == nullptr) {
    WEFT_ASSIGN_OR_RETURN(sink_, registrar_->Open(memory(), Access::kLocalOnly));
  }
  return fi_mr_desc(sink_.get());
}

}  // namespace weft
