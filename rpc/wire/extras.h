// The extras of a frame: metadata, and what an error's status carries beside its text.
//
// They stand in front of the body, behind the windows, in frames whose kind has kExtrasBit
// (frame.h). Most frames have none, and pay nothing for it.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/metadata.h"

namespace weft {

// At most kMaxExtrasBytes; empty: there is nothing to say. Of `details` the payloads count, without
// those that are Weft's own ("weft."): the first ones that fit into kMaxMetadataBytes. `once`: of
// which call the request is an attempt; null: of none that has such a name.
std::string EncodeExtras(const Metadata& metadata, const absl::Status& details = {},
                         const OnceAttempt* once = nullptr);

// What extras say of a call that runs exactly once.
struct OnceExtras {
  std::optional<OnceAttempt> attempt;  // in requests alone
  bool outcome_unknown = false;        // in errors alone
};

// False: no peer of this protocol encodes them so. `details` is an error, which gets the payloads;
// null: there may be none. So is it with `once`.
[[nodiscard]] bool DecodeExtras(ByteSpan encoded, Metadata* metadata, absl::Status* details,
                                OnceExtras* once = nullptr);

}  // namespace weft
