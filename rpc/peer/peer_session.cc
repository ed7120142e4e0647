#include "rpc/peer/peer_session.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/peer/peer_sessions.h"

namespace weft {

namespace {

// What a client asks of the server that it dials, of a peer that has dialed this server.
absl::Status CheckIdentity(const std::string& id, const SecurityOptions& wanted,
                           const PeerIdentity& identity) {
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const bool by_secret = !wanted.psk_name.empty();
  const bool is_it =
      by_secret ? identity.authentication == Authentication::kPreSharedKey &&
                      identity.psk_name == wanted.psk_name
                : identity.authentication == Authentication::kCertificate &&
                      (wanted.expected_uri.empty() || has(identity.uris, wanted.expected_uri)) &&
                      (wanted.server_name.empty() || has(identity.dns_names, wanted.server_name));
  if (is_it) return absl::OkStatus();
  const std::string& name = by_secret                     ? wanted.psk_name
                            : wanted.expected_uri.empty() ? wanted.server_name
                                                          : wanted.expected_uri;
  return absl::UnauthenticatedError(
      StrCat("peer ", id, " has connected, and has not proved to be \"", name,
             "\", as its channel's SecurityOptions ask: ", IdentityText(identity)));
}

}  // namespace

PeerSession::PeerSession(PeerSessions& sessions, std::string id)
    : sessions_(sessions), id_(std::move(id)) {}

EngineCore& PeerSession::engine() { return sessions_.engine(); }

// --- the caller ---------------------------------------------------------------------------------

absl::Status PeerSession::Reserve(const std::string& address) {
  if (has_caller()) {
    return absl::AlreadyExistsError(
        StrCat("there is a channel to peer ", id_, " already: use that one"));
  }
  reserved_ = true;
  address_ = address;
  dial_failed_ = false;
  return absl::OkStatus();
}

void PeerSession::Join(Caller* caller) {
  WEFT_CHECK(reserved_ && caller_ == nullptr);  // Ours: OpenPeer() reserves, and joins once
  reserved_ = false;
  caller_ = caller;
  Offer();
  if (current_ == nullptr) caller_->WantConnection();
}

// The caller gets the connection that is there.
void PeerSession::Offer() {
  if (caller_ == nullptr || current_ == nullptr) return;
  if (current_->may_attach()) {
    current_->Attach(caller_->calling_half());
    caller_->TakeConnection(current_->connection());
  }
  current_->BeginCalls();
}

absl::StatusOr<Connection*> PeerSession::Connect(ConnectOptions options) {
  if (current_ != nullptr) {
    // The caller is being told that it has lost another one; Offer() follows.
    if (!current_->may_attach()) {
      return absl::UnavailableError(StrCat("the last connection with peer ", id_, " is closing"));
    }
    current_->Attach(caller_->calling_half());
    return &current_->connection();
  }
  if (sessions_.stopped()) return absl::UnavailableError("this server is shutting down");
  if (address_.empty()) {
    return absl::UnavailableError(
        StrCat("peer ", id_, " has not connected, and no address was given to dial it"));
  }
  // Encoded messages that follow each other are merged.
  options.hello += sessions_.EncodeHelloTo(id_);
  auto* const dialed = new PeerConnection(*this, /*dialed=*/true, /*incarnation=*/0);
  absl::StatusOr<Connection*> connection =
      sessions_.engine().transport().Connect(address_, options, dialed);
  if (!connection.ok()) {
    delete dialed;
    return connection;
  }
  dialed->Start(**connection, /*serving=*/nullptr);
  dialed->Attach(caller_->calling_half());
  current_ = dialed;
  ++connections_;
  sessions_.OnConnectionMade();
  return connection;
}

absl::Status PeerSession::ReadHello(Connection& connection,
                                    const std::optional<SecurityOptions>& security,
                                    rpc::ServerHello* hello) {
  // Ours: asked for by the half that the current one opens
  WEFT_CHECK(current_ != nullptr && &current_->connection() == &connection);
  if (!current_->dialed()) {
    // Its id is its own word. What this side has dialed, the transport has checked.
    if (security.has_value()) {
      WEFT_RETURN_IF_ERROR(CheckIdentity(id_, *security, connection.path().identity));
    }
    rpc::ClientHello peers;
    if (!peers.ParseFromString(connection.peer_hello())) {
      return absl::FailedPreconditionError("the peer's hello cannot be decoded");
    }
    hello->Swap(peers.mutable_peer()->mutable_server());
    hello->set_incarnation(current_->incarnation());
    return absl::OkStatus();
  }
  if (!hello->ParseFromString(connection.peer_hello())) {
    return absl::FailedPreconditionError(
        "what listens there is not a Weft server: its hello cannot be decoded");
  }
  if (hello->peer_id() != id_ || hello->incarnation() == 0) {
    return absl::FailedPreconditionError(
        StrCat(hello->peer_id().empty() ? "what listens there has no ServerOptions::peer_id"
                                        : "the peer that listens there has another id",
               ": ", id_, " was wanted; is the address right?"));
  }
  current_->set_incarnation(hello->incarnation());
  dial_failed_ = false;
  return absl::OkStatus();
}

void PeerSession::EndCalls() {
  if (current_ != nullptr) current_->EndCalls();
}

void PeerSession::Leave() { ForgetCaller(&PeerConnection::Leave); }
void PeerSession::LeaveByClosing() { ForgetCaller(&PeerConnection::LeaveByClosing); }

void PeerSession::ForgetCaller(void (PeerConnection::*leave)()) {
  caller_ = nullptr;
  if (current_ != nullptr && current_->attached()) (current_->*leave)();
  sessions_.ForgetIfIdle(*this);  // this may be gone now
}

std::string PeerSession::CallerHello() const { return caller_->EncodeHello(); }

// --- connections that come and go ---------------------------------------------------------------

absl::StatusOr<ConnectionHandler*> PeerSession::OnIncoming(Connection& connection,
                                                           uint64_t incarnation) {
  if (current_ == nullptr) return Accept(connection, incarnation, &current_);
  if (std::find(superseded_.begin(), superseded_.end(), incarnation) != superseded_.end()) {
    return absl::FailedPreconditionError(
        StrCat("another process with the id ", id_,
               " has taken the place of this one: were both given the same peer_id?"));
  }
  if (current_->is_open()) {
    GiveUp(next_, "the peer has dialed once more");
    return Accept(connection, incarnation, &next_);
  }
  if (current_->dialed() && sessions_.own_id() < id_ && !dial_failed_) {
    return absl::AbortedError(StrCat("both servers dial at the same time, and the attempt of ",
                                     sessions_.own_id(), " goes on"));
  }
  GiveUp(current_, "another connection has come from the other side");
  return Accept(connection, incarnation, &current_);
}

absl::StatusOr<ConnectionHandler*> PeerSession::Accept(Connection& connection, uint64_t incarnation,
                                                       PeerConnection** place) {
  auto* const accepted = new PeerConnection(*this, /*dialed=*/false, incarnation);
  accepted->Start(connection, sessions_.host().MakeServing(connection, accepted->peer()));
  *place = accepted;
  ++connections_;
  sessions_.OnConnectionMade();
  if (place == &current_) Offer();
  return accepted;
}

void PeerSession::GiveUp(PeerConnection*& connection, std::string_view why) {
  if (connection != nullptr) std::exchange(connection, nullptr)->GiveUp(why);
}

void PeerSession::Supersede(uint64_t incarnation) {
  if (superseded_.size() == kMostSuperseded) superseded_.erase(superseded_.begin());
  superseded_.push_back(incarnation);
}

void PeerSession::OnOpen(PeerConnection& connection) {
  // Its grants may come before it begins to call.
  if (connection.dialed()) sessions_.host().SetTenant(connection.connection());
  if (&connection == next_) {
    if (current_->incarnation() != next_->incarnation()) Supersede(current_->incarnation());
    current_->Close("the peer has another connection");
  } else if (&connection == current_) {
    if (!current_->dialed()) dial_failed_ = false;
    current_->BeginCalls();
  }
}

void PeerSession::OnClosed(PeerConnection& connection, ConnectionHandler* calling,
                           const absl::Status& why) {
  --connections_;
  if (&connection == next_) next_ = nullptr;
  if (&connection == current_) {
    if (connection.dialed() && connection.incarnation() == 0) dial_failed_ = true;
    current_ = std::exchange(next_, nullptr);
    if (current_ == nullptr) superseded_.clear();
  }
  // The caller may ask for the next one inside, and start calls, which wait for that.
  if (calling != nullptr) calling->OnClosed(connection.connection(), why);
  Offer();
  if (current_ == nullptr && caller_ != nullptr) caller_->WantConnection();
  sessions_.OnConnectionGone(*this);  // this may be gone now
}

void PeerSession::CloseAll(std::string_view why) {
  if (current_ != nullptr) current_->Close(why);
  if (next_ != nullptr) next_->Close(why);
}

void PeerSession::StopDialing(std::string_view why) {
  if (current_ != nullptr && current_->dialed() && !current_->is_open()) current_->Close(why);
}

// --- the half that serves -----------------------------------------------------------------------

ConnectionHandler* PeerSession::Serve(PeerConnection& connection, std::string_view client_hello) {
  PeerSessions::Host& host = sessions_.host();
  ConnectionHandler* const serving = host.MakeServing(connection.connection(), connection.peer());
  host.BeginServing(*serving, connection.connection(), client_hello);
  return serving;
}

void PeerSession::EndServing(PeerConnection& connection, ConnectionHandler& serving) {
  sessions_.host().EndServing(serving, connection.connection());
}

void PeerSession::OnProtocolError() { sessions_.host().OnProtocolError(); }

}  // namespace weft
