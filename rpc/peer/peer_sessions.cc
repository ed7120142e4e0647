#include "rpc/peer/peer_sessions.h"

#include <utility>

#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/peer_frame.h"

namespace weft {

namespace {

// A channel to the peer refuses the same, but when the connection is open: by then it has taken the
// place of another one.
absl::Status CheckServing(const rpc::PeerHello& hello) {
  if (!hello.has_server()) {
    return absl::InvalidArgumentError("the dialing server does not tell what it serves");
  }
  if (hello.server().protocol() != kRpcProtocolVersion) {
    return absl::FailedPreconditionError(
        StrCat("the dialing server speaks version ", hello.server().protocol(),
               " of the call protocol, this server version ", kRpcProtocolVersion));
  }
  // As many as 16 bits can number, but for one number that stands for none.
  constexpr int kMostMethods = 65534;
  int methods = hello.server().forms_size();
  for (const rpc::ServiceTable& service : hello.server().services()) {
    methods += service.methods_size();
  }
  if (hello.server().max_outstanding_calls() == 0 || methods > kMostMethods) {
    return absl::InvalidArgumentError(
        "what the dialing server tells of its services makes no sense");
  }
  return absl::OkStatus();
}

}  // namespace

PeerSessions::~PeerSessions() {
  WEFT_CHECK(!has_channels());    // User: channels to peers go before their server
  WEFT_CHECK(connections_ == 0);  // Ours: Shutdown() waits for them
}

PeerSession& PeerSessions::SessionOf(const std::string& id) {
  std::unique_ptr<PeerSession>& session = sessions_[id];
  if (session == nullptr) session = std::make_unique<PeerSession>(*this, id);
  return *session;
}

absl::StatusOr<PeerSession*> PeerSessions::Reserve(const std::string& id,
                                                   const std::string& address) {
  if (own_id_.empty()) {
    return absl::FailedPreconditionError(
        "a server without an id has no peers: set ServerOptions::peer_id");
  }
  WEFT_RETURN_IF_ERROR(CheckPeerId("the peer's id", id));
  if (id == own_id_) {
    return absl::InvalidArgumentError(StrCat("the id ", id, " is this server's own"));
  }
  PeerSession& session = SessionOf(id);
  WEFT_RETURN_IF_ERROR(session.Reserve(address));
  return &session;
}

void PeerSessions::Unreserve(PeerSession& session) {
  session.Unreserve();
  ForgetIfIdle(session);
}

absl::StatusOr<ConnectionHandler*> PeerSessions::OnIncoming(Connection& connection,
                                                            const rpc::PeerHello& hello) {
  if (hello.wanted() != own_id_ || own_id_.empty()) {
    return absl::FailedPreconditionError(
        StrCat(own_id_.empty() ? "this server has no ServerOptions::peer_id"
                               : "this server has another id than the one that was wanted",
               ": is the address right?"));
  }
  WEFT_RETURN_IF_ERROR(CheckPeerId("the dialing server's id", hello.id()));
  if (hello.id() == own_id_ || hello.incarnation() == 0) {
    return absl::InvalidArgumentError(
        hello.incarnation() == 0
            ? "the dialing server tells no incarnation"
            : StrCat("the id ", own_id_, " is this server's own: two servers need two ids"));
  }
  WEFT_RETURN_IF_ERROR(CheckServing(hello));
  return SessionOf(hello.id()).OnIncoming(connection, hello.incarnation());
}

std::string PeerSessions::EncodeHelloTo(const std::string& wanted) const {
  rpc::ClientHello hello;
  rpc::PeerHello& peer = *hello.mutable_peer();
  peer.set_id(own_id_);
  peer.set_incarnation(incarnation_);
  peer.set_wanted(wanted);
  *peer.mutable_server() = host_.MakeHello();
  return hello.SerializeAsString();
}

void PeerSessions::Stop() {
  stopped_ = true;
  for (const auto& [id, session] : sessions_) session->StopDialing("this server is shutting down");
}

void PeerSessions::CloseAll(std::string_view why) {
  for (const auto& [id, session] : sessions_) session->CloseAll(why);
}

uint32_t PeerSessions::open() const {
  uint32_t count = 0;
  for (const auto& [id, session] : sessions_) count += session->is_open();
  return count;
}

bool PeerSessions::has_calls() const {
  for (const auto& [id, session] : sessions_) {
    if (session->has_calls()) return true;
  }
  return false;
}

bool PeerSessions::has_channels() const {
  for (const auto& [id, session] : sessions_) {
    if (session->has_caller()) return true;
  }
  return false;
}

void PeerSessions::OnConnectionGone(PeerSession& session) {
  --connections_;
  ForgetIfIdle(session);
  host_.OnPeerConnectionGone();
}

void PeerSessions::ForgetIfIdle(PeerSession& session) {
  if (session.is_idle()) sessions_.erase(std::string(session.id()));
}

}  // namespace weft
