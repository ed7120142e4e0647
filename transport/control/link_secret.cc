#include "transport/control/link_secret.h"

#include <openssl/evp.h>

#include <cstring>

#include "core/check.h"
#include "core/status.h"

namespace weft {

void LinkSecrets::Note(ControlType type, ByteSpan body) {
  if (type != ControlType::kClientHello && type != ControlType::kServerHello) return;
  std::byte* const hash = hellos_.data() + (type == ControlType::kServerHello ? kHashBytes : 0);
  // Fails only without memory, or without SHA-256.
  WEFT_CHECK(EVP_Digest(body.data(), body.size(), reinterpret_cast<unsigned char*>(hash), nullptr,
                        EVP_sha256(), nullptr) == 1);
}

absl::StatusOr<LinkSecret> LinkSecrets::Derive(const TlsStream& control, const LinkPeer& peer,
                                               PathKind kind) const {
  std::array<std::byte, sizeof(hellos_) + 2 * sizeof(uint64_t) + 1> context;
  std::memcpy(context.data(), hellos_.data(), hellos_.size());
  StoreLe64(context.data() + hellos_.size(), peer.nonce);
  StoreLe64(context.data() + hellos_.size() + sizeof(uint64_t), peer.nonce_low);
  context.back() = static_cast<std::byte>(kind);
  LinkSecret secret;
  WEFT_RETURN_IF_ERROR(control.Export(kLinkSecretLabel, context, secret));
  return secret;
}

}  // namespace weft
