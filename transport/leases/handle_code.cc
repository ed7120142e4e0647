#include "transport/leases/handle_code.h"

#include <openssl/crypto.h>

#include <algorithm>

#include "core/random.h"
#include "transport/hmac.h"

namespace weft {

HandleCode::HandleCode() { SecureRandomBytes(key_); }

HandleCode::Code HandleCode::Compute(ByteSpan signed_part) const {
  const auto hash = HmacSha256(key_, signed_part);
  static_assert(RegionHandle::kCodeBytes <= hash.size());
  Code code;
  std::copy_n(hash.begin(), code.size(), code.begin());
  return code;
}

RegionHandle HandleCode::Mint(const RegionHandle::Claim& claim) const {
  std::array<std::byte, RegionHandle::kBytes> bytes = {};
  bytes[0] = static_cast<std::byte>(RegionHandle::kVersion);
  bytes[1] = static_cast<std::byte>(claim.rights);
  StoreLe32(&bytes[4], claim.slot);
  StoreLe32(&bytes[8], claim.generation);
  StoreLe32(&bytes[12], claim.tenant);
  StoreLe64(&bytes[16], claim.offset);
  StoreLe64(&bytes[24], claim.length);
  StoreLe64(&bytes[32], claim.expires_ns);
  const Code code = Compute(ByteSpan(bytes).first(RegionHandle::kSignedBytes));
  std::copy(code.begin(), code.end(), bytes.begin() + RegionHandle::kSignedBytes);
  RegionHandle handle;
  WEFT_CHECK(RegionHandle::FromBytes(AsStringView(bytes), &handle));  // Ours: built to be one
  return handle;
}

bool HandleCode::Verify(const RegionHandle& handle) const {
  const ByteSpan bytes(handle.bytes());
  const Code code = Compute(bytes.first(RegionHandle::kSignedBytes));
  return CRYPTO_memcmp(code.data(), bytes.data() + RegionHandle::kSignedBytes, code.size()) == 0;
}

}  // namespace weft
