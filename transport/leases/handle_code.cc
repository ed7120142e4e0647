#include "transport/leases/handle_code.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>

#include "core/check.h"
#include "core/random.h"

namespace weft {
namespace {

const unsigned char* AsUnsigned(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

}  // namespace

HandleCode::HandleCode() { SecureRandomBytes(key_); }

HandleCode::~HandleCode() { OPENSSL_cleanse(key_.data(), key_.size()); }

HandleCode::Code HandleCode::Compute(ByteSpan signed_part) const {
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned int hash_bytes = 0;
  const unsigned char* const result =
      HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()), AsUnsigned(signed_part.data()),
           signed_part.size(), hash, &hash_bytes);
  // Without a hash nothing safe can follow. (It fails for want of memory only.)
  // System: memory for a hash; nothing safe can follow
  WEFT_CHECK(result != nullptr && hash_bytes >= RegionHandle::kCodeBytes);
  Code code;
  std::copy_n(reinterpret_cast<const std::byte*>(hash), code.size(), code.begin());
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
