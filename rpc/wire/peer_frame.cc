#include "rpc/wire/peer_frame.h"

#include <algorithm>

#include "core/strings.h"

namespace weft {

absl::Status CheckPeerId(std::string_view what, std::string_view id) {
  const auto is_visible = [](char c) { return c > ' ' && c <= '~'; };
  if (!id.empty() && id.size() <= kMaxPeerIdBytes && std::all_of(id.begin(), id.end(), is_visible))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(what, " has ", id.size(), " bytes, or some that are not allowed; 1 to ",
             kMaxPeerIdBytes, " printable ASCII characters without blanks are"));
}

}  // namespace weft
