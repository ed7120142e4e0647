// A header of this program's own, which has the name of one in the source tree of Weft.
#pragma once

namespace consumer {

inline constexpr int own_rpc_channel_h = 1;

}  // namespace consumer
