#include "transport/hmac.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "core/check.h"

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

}  // namespace weft
