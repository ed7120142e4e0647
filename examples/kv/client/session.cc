#include "examples/kv/client/session.h"

#include <utility>

namespace kv::client {

std::string PathName(weft::Channel& channel) {
  const absl::StatusOr<weft::PathInfo> path = channel.path();
  return path.ok() ? std::string(weft::PathKindName(path->kind)) : "no path";
}

absl::StatusOr<std::unique_ptr<OneSidedGets>> OpenOneSidedGets(const Session& session) {
  return OneSidedGets::Open(session.channel, session.call, session.outstanding,
                            [&session](uint32_t lane, const GetRequest& request, GetReply* reply,
                                       weft::Function<void(absl::Status)> done) {
                              session.GetByCall(lane, request, reply, std::move(done));
                            });
}

}  // namespace kv::client
