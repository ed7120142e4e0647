#include "rpc/peer/peer_session.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "core/check.h"
#include "core/log.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/peer/peer_sessions.h"

namespace weft {

namespace {

bool Names(std::string_view dns_name, std::string_view host) {
  if (absl::EqualsIgnoreCase(ToAbsl(dns_name), ToAbsl(host))) return true;
  // As OpenSSL has it: a "*" is one whole label, the first one, with two or more behind it.
  const size_t end = host.find('.');
  if (end == 0 || end == std::string_view::npos || dns_name.substr(0, 2) != "*." ||
      dns_name.find('.', 2) == std::string_view::npos) {
    return false;
  }
  return std::all_of(host.begin(), host.begin() + static_cast<ptrdiff_t>(end),
                     [](char c) { return c == '-' || absl::ascii_isalnum(c); }) &&
         absl::EqualsIgnoreCase(ToAbsl(dns_name.substr(1)), ToAbsl(host.substr(end)));
}

// What a channel asks of a peer, whichever side has dialed.
absl::Status CheckIdentity(const std::string& id, const SecurityOptions& wanted,
                           const PeerIdentity& identity) {
  const auto has_uri = [&identity](const std::string& uri) {
    return std::find(identity.uris.begin(), identity.uris.end(), uri) != identity.uris.end();
  };
  const auto is_named = [&identity](const std::string& host) {
    return std::any_of(identity.dns_names.begin(), identity.dns_names.end(),
                       [&](const std::string& dns_name) { return Names(dns_name, host); });
  };
  const bool by_secret = !wanted.psk_name.empty();
  const bool is_it = by_secret
                         ? identity.authentication == Authentication::kPreSharedKey &&
                               identity.psk_name == wanted.psk_name
                         : identity.authentication == Authentication::kCertificate &&
                               (wanted.expected_uri.empty() || has_uri(wanted.expected_uri)) &&
                               (wanted.server_name.empty() || is_named(wanted.server_name));
  if (is_it) return absl::OkStatus();
  const std::string& name = by_secret                     ? wanted.psk_name
                            : wanted.expected_uri.empty() ? wanted.server_name
                                                          : wanted.expected_uri;
  return absl::UnauthenticatedError(
      StrCat("peer ", id, " is connected, and has not proved to be \"", name,
             "\", as its channel's SecurityOptions ask: ", IdentityText(identity)));
}

// By what TLS has proved of the two. A certificate that was issued again has the same names.
bool IsSame(const PeerIdentity& a, const PeerIdentity& b) {
  const auto same = [](const std::vector<std::string>& x, const std::vector<std::string>& y) {
    return std::is_permutation(x.begin(), x.end(), y.begin(), y.end());
  };
  if (a.authentication != b.authentication) return false;
  if (a.authentication == Authentication::kPreSharedKey) return a.psk_name == b.psk_name;
  const bool has_names = !a.dns_names.empty() || !a.uris.empty();
  return same(a.dns_names, b.dns_names) && same(a.uris, b.uris) &&
         (has_names || a.subject == b.subject);
}

bool IsProved(const PeerIdentity& identity) {
  return identity.authentication == Authentication::kCertificate ||
         identity.authentication == Authentication::kPreSharedKey;
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
        StrCat("peer ", id_, " has not connected, and no address was given to dial it",
               refused_.ok() ? "" : "; the last one that has tried: ", refused_.message()));
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

absl::Status PeerSession::ReadHello(Connection& connection, rpc::ServerHello* hello) {
  // Ours: asked for by the half that the current one opens
  WEFT_CHECK(current_ != nullptr && &current_->connection() == &connection);
  // It may have come before the channel, or been dialed for another one, which wanted another peer.
  if (caller_->security().has_value()) {
    WEFT_RETURN_IF_ERROR(CheckIdentity(id_, *caller_->security(), connection.path().identity));
  }
  if (!current_->dialed()) {
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

absl::Status PeerSession::CheckNewcomer(const PeerIdentity& identity) const {
  // Its id is its own word.
  if (caller_ != nullptr && caller_->security().has_value()) {
    WEFT_RETURN_IF_ERROR(CheckIdentity(id_, *caller_->security(), identity));
  }
  for (PeerConnection* const there : {current_, next_}) {
    if (there == nullptr) continue;
    // Nobody's yet, of an attempt of this side.
    const PeerIdentity& present = there->connection().path().identity;
    if (!IsProved(present) || IsSame(present, identity)) continue;
    return absl::UnauthenticatedError(
        StrCat("who dials as peer ", id_,
               " has not proved to be the peer that is connected, or about to be: ",
               IdentityText(identity)));
  }
  return absl::OkStatus();
}

absl::StatusOr<ConnectionHandler*> PeerSession::OnIncoming(Connection& connection,
                                                           uint64_t incarnation) {
  refused_ = CheckNewcomer(connection.path().identity);
  if (!refused_.ok()) {
    WEFT_LOG_EVERY_N_SEC(kWarning, 1, "a connection is refused: ", refused_.message());
    return refused_;
  }
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
