#include "transport/hmac.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstdint>

#include "core/check.h"
#include "transport/link.h"

namespace weft {

SecretBytes<kSha256Bytes> HmacSha256(ByteSpan key, ByteSpan data) {
  SecretBytes<kSha256Bytes> code;
  unsigned int bytes = 0;
  const unsigned char* const result =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(data.data()), data.size(),
           reinterpret_cast<unsigned char*>(code.data()), &bytes);
  // System: memory for a hash; nothing safe can follow
  WEFT_CHECK(result != nullptr && bytes == code.size());
  return code;
}

Nonce128 HmacNonce(ByteSpan key, std::string_view text) {
  const auto code = HmacSha256(key, AsBytes(text));
  return {LoadLe64(code.data()), LoadLe64(code.data() + sizeof(uint64_t))};
}

}  // namespace weft
