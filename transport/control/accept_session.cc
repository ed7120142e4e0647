#include "transport/control/accept_session.h"

#include <algorithm>
#include <utility>

#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/control/host_facts.h"
#include "transport/control/negotiate.h"

namespace weft {
namespace {

// For people with a browser, and gRPC clients at the wrong port.
constexpr std::string_view kHttpAnswer =
    "HTTP/1.1 400 Bad Request\r\n"
    "Content-Type: text/plain\r\n"
    "Content-Length: 65\r\n"
    "Connection: close\r\n"
    "\r\n"
    "This port speaks Weft's control protocol, not HTTP. Use a client\n";

}  // namespace

absl::StatusOr<HandOver> AcceptPolicy::OnNeighbour(const Nonce128& nonce, Neighbour neighbour) {
  const auto found = expected.find(nonce.high);
  if (found == expected.end()) return absl::NotFoundError("no handshake waits for this nonce");
  return found->second->TakeNeighbour(nonce, std::move(neighbour));
}

AcceptSession::AcceptSession(ControlContext* context, std::shared_ptr<AcceptPolicy> policy)
    : ControlSession(context), policy_(std::move(policy)) {}

absl::Status AcceptSession::Start(Descriptor descriptor) {
  absl::Status status = TakeSocket(std::move(descriptor), /*dialing=*/false);
  if (!status.ok()) {
    Finish(status, /*peer_dead=*/true, std::nullopt);
    return status;
  }
  started_ns_ = context().now_ns();
  SetAlarm(started_ns_ + std::min(kHelloNs, policy_->options.link.connect_timeout_ns));
  return status;
}

void AcceptSession::Evict() {
  Finish(absl::ResourceExhaustedError("too many clients without a hello"), /*peer_dead=*/true,
         std::nullopt);
}

void AcceptSession::OnHandshakeAlarm() {
  const absl::Status why = absl::UnavailableError(
      state_ == State::kGreeting
          ? std::string("the client sent no hello in time")
          : StrCat("the handshake was not complete within ",
                   policy_->options.link.connect_timeout_ns / kNsPerMs, " ms"));
  if (state_ == State::kGreeting) return Finish(why, /*peer_dead=*/true, std::nullopt);
  Fail(why);
}

void AcceptSession::OnProtocolError(const absl::Status& why) {
  switch (socket()->greeting()) {
    case ControlFrameReader::Greeting::kHttp:
      socket()->SendRaw(kHttpAnswer);
      break;
    case ControlFrameReader::Greeting::kOtherVersion:
      socket()->SendPreamble();  // tells the client which version there is
      break;
    case ControlFrameReader::Greeting::kWeft:
      if (state_ == State::kGreeting) return Refuse(why);
      return Fail(why);
    case ControlFrameReader::Greeting::kNone:
    case ControlFrameReader::Greeting::kForeign:
      break;
  }
  Finish(why, /*peer_dead=*/true, std::nullopt);
}

void AcceptSession::Refuse(const absl::Status& why) {
  if (state_ == State::kGreeting) socket()->SendPreamble();
  Finish(why, /*peer_dead=*/false, LastWords{ControlType::kRefusal, EncodeRefusal(why)});
}

void AcceptSession::OnFinish() {
  ListNode<GreetingTag>::Unlink();
  state_ = State::kDone;
  if (std::exchange(counted_, false)) --policy_->connections;
  const auto found = policy_->expected.find(server_.local_nonce.high);
  if (found != policy_->expected.end() && found->second == this) policy_->expected.erase(found);
}

// --- the hello -----------------------------------------------------------------------------------

absl::Status AcceptSession::OnFrame(const ControlFrame& frame) {
  if (state_ == State::kGreeting) {
    if (frame.type != ControlType::kClientHello) {
      return absl::DataLossError(
          StrCat("the client began with ", ControlTypeName(frame.type), " instead of its hello"));
    }
    const absl::Status status = OnClientHello(frame.body);
    if (!status.ok()) Refuse(status);
    return absl::OkStatus();
  }
  switch (frame.type) {
    case ControlType::kPathTry:
      return OnPathTry(frame.body);
    case ControlType::kPathUp:
      return OnPeerUp(frame.body);
    case ControlType::kPathFailed:
      return OnPathFailed(frame.body);
    default:
      return absl::DataLossError(
          StrCat("the client sent ", ControlTypeName(frame.type), " during the handshake"));
  }
}

absl::Status AcceptSession::OnClientHello(ByteSpan body) {
  WEFT_ASSIGN_OR_RETURN(client_, DecodeClientHello(body));
  ListNode<GreetingTag>::Unlink();
  if (policy_->acceptor == nullptr) return absl::UnavailableError("the server stops listening");
  WEFT_ASSIGN_OR_RETURN(server_.version, NegotiateVersion(client_.versions, kProtocolVersions));
  if (policy_->connections >= policy_->options.max_connections) {
    return absl::ResourceExhaustedError(StrCat("the server has all ",
                                               policy_->options.max_connections,
                                               " connections (ListenOptions::max_connections)"));
  }
  WEFT_RETURN_IF_ERROR(CreateConnection(nullptr, policy_->options.link));
  ++policy_->connections;
  counted_ = true;
  Decide();
  if (!HasViable(connection().facts().candidates)) {
    EndWithoutPath();
    return absl::OkStatus();
  }
  connection().facts().peer_hello = std::move(client_.hello);
  WEFT_ASSIGN_OR_RETURN(ConnectionHandler* const handler,
                        policy_->acceptor->OnIncoming(connection()));
  if (handler == nullptr) return absl::InternalError("the server has no handler for connections");
  connection().set_handler(handler);
  Offer();
  return absl::OkStatus();
}

// Fills the ServerHello in, all but what the application adds.
void AcceptSession::Decide() {
  server_.features = NegotiateFeatures(client_.features, OwnFeatures());
  server_.limits = OwnLimits();
  server_.connection_index = connection().index();
  server_.connection_token = connection().token();
  server_.host = ReadHostFacts();
  server_.paths = context().Offers(policy_->paths);
  for (PathOffer& offer : server_.paths) {
    if (offer.kind == PathKind::kShm && offer.unavailable.empty() &&
        policy_->local_socket.empty()) {
      offer.unavailable = "no local socket could be opened";
    }
  }
  server_.candidates = NegotiatePaths(client_, server_, policy_->paths.allow_routed);
  connection().facts().candidates =
      DescribePairs(server_.candidates, client_.paths, server_.paths, /*as_client=*/false);
  OpenDomains();
}

// The client learns every reason from the verdicts.
void AcceptSession::EndWithoutPath() {
  const absl::Status why = NoCommonPath(connection().facts().candidates);
  socket()->SendPreamble();
  Finish(why, /*peer_dead=*/false, LastWords{ControlType::kServerHello, Encode(server_)});
}

// A path that the client may choose must be there. Of several RDMA addresses the first that can be
// opened will do: the others are opened if the client comes to try them.
void AcceptSession::OpenDomains() {
  bool rdma_is_open = false;
  for (size_t i = 0; i < server_.candidates.size(); ++i) {
    PathPair& pair = server_.candidates[i];
    if (!pair.rejected.empty()) continue;
    const PathOffer& own = server_.paths[static_cast<size_t>(pair.server_offer)];
    const bool is_rdma = own.kind == PathKind::kVerbs;
    if (is_rdma && rdma_is_open) continue;
    const absl::StatusOr<FramingDomain*> domain = context().domains->Open(own, context().now_ns());
    if (domain.ok()) {
      rdma_is_open = rdma_is_open || is_rdma;
      continue;
    }
    pair.rejected = StrCat("server: ", ToStd(domain.status().message()));
    Reject(Candidate(i), pair.rejected);
  }
}

const PathOffer& AcceptSession::own_offer() const {
  return server_.paths[static_cast<size_t>(server_.candidates[candidate_].server_offer)];
}

const PathOffer& AcceptSession::peer_offer() const {
  return client_.paths[static_cast<size_t>(server_.candidates[candidate_].client_offer)];
}

void AcceptSession::Offer() {
  state_ = State::kOffered;
  server_.hello = policy_->options.hello;
  for (const PathCandidate& candidate : connection().facts().candidates) {
    if (candidate.kind != PathKind::kShm ||
        candidate.outcome != PathCandidate::Outcome::kNotTried) {
      continue;
    }
    server_.local_socket = policy_->local_socket;
    server_.local_nonce = {SecureRandom64(), SecureRandom64()};
    policy_->expected[server_.local_nonce.high] = this;
  }
  SetAlarm(context().now_ns() + policy_->options.link.connect_timeout_ns);
  socket()->SendPreamble();
  socket()->Send(ControlType::kServerHello, Encode(server_));
  server_.hello.clear();
}

absl::StatusOr<HandOver> AcceptSession::TakeNeighbour(const Nonce128& nonce, Neighbour neighbour) {
  if (!(nonce == server_.local_nonce) || stage() != Stage::kHandshake) {
    return absl::NotFoundError("no handshake waits for this nonce");
  }
  WEFT_RETURN_IF_ERROR(CheckProcessId(client_.host.process_id, neighbour.process_id));
  if (neighbour_.doorbell != nullptr) return absl::AlreadyExistsError("the nonce has been used");
  const auto offer = std::find_if(server_.paths.begin(), server_.paths.end(),
                                  [](const PathOffer& o) { return o.kind == PathKind::kShm; });
  if (offer == server_.paths.end()) return absl::NotFoundError("shared memory is not offered");
  WEFT_ASSIGN_OR_RETURN(FramingDomain* const domain,
                        context().domains->Open(*offer, context().now_ns()));
  WEFT_ASSIGN_OR_RETURN(const int link, domain->links().NewLinkMemory());
  neighbour.link.Reset(link);
  neighbour_ = std::move(neighbour);
  return HandOver{domain->links().host_descriptor(), link};
}

// --- paths ---------------------------------------------------------------------------------------

absl::Status AcceptSession::OnPathTry(ByteSpan body) {
  WEFT_ASSIGN_OR_RETURN(const PathTry wanted, DecodePathTry(body));
  if (wanted.attempt <= attempt_) {
    return absl::DataLossError(
        StrCat("the client numbers an attempt ", wanted.attempt, " after ", attempt_));
  }
  PathCandidate* const candidate = Candidate(wanted.candidate);
  if (candidate == nullptr || candidate->outcome != PathCandidate::Outcome::kNotTried) {
    return absl::DataLossError(
        StrCat("the client tries the candidate ", wanted.candidate, ", which is ruled out"));
  }
  connection().StopLink();
  attempt_ = wanted.attempt;
  candidate_ = wanted.candidate;
  state_ = State::kLinking;
  link_up_ = peer_up_ = false;
  const absl::Status status = StartAttempt(wanted);
  if (!status.ok()) FailAttempt(std::string(status.message()));
  return absl::OkStatus();
}

absl::Status AcceptSession::StartAttempt(const PathTry& wanted) {
  LinkPeer peer;
  peer.address = wanted.address;
  peer.nonce = SecureRandom64();
  if (own_offer().kind == PathKind::kShm) {
    if (neighbour_.doorbell == nullptr) {
      return absl::FailedPreconditionError("the client has not shown that it is on this host");
    }
    neighbour_.Describe(&peer);
  }
  WEFT_ASSIGN_OR_RETURN(FramingDomain* const domain,
                        context().domains->Open(own_offer(), context().now_ns()));
  const LinkAgreement agreement{client_.connection_index,
                                client_.connection_token,
                                client_.limits.window_slots,
                                server_.limits.window_slots,
                                std::min(wanted.batch_bytes, domain->links().slot_bytes()),
                                HasFeature(server_.features, kRequestsFeature),
                                HasFeature(server_.features, kLeasesFeature)};
  WEFT_RETURN_IF_ERROR(StartLink(candidate_, domain, peer, /*active=*/false, agreement));
  socket()->Send(ControlType::kPathReady,
                 Encode(PathReady{attempt_, domain->links().address(), peer.nonce,
                                  domain->links().slot_bytes()}));
  return absl::OkStatus();
}

void AcceptSession::OnPathUp() {
  if (state_ != State::kLinking) return;
  link_up_ = true;
  OpenIfBothUp();
}

absl::Status AcceptSession::OnPeerUp(ByteSpan body) {
  WEFT_ASSIGN_OR_RETURN(const uint32_t attempt, DecodePathUp(body));
  if (attempt != attempt_ || state_ != State::kLinking) return absl::OkStatus();
  peer_up_ = true;
  OpenIfBothUp();
  return absl::OkStatus();
}

void AcceptSession::OpenIfBothUp() {
  if (!link_up_ || !peer_up_) return;
  state_ = State::kDone;
  socket()->Send(ControlType::kOpen, EncodeOpen(attempt_));
  policy_->expected.erase(server_.local_nonce.high);
  Opened(candidate_, ChosenReason(server_.host, client_.host, own_offer(), peer_offer()),
         client_.limits);
}

void AcceptSession::OnPathBroken(const absl::Status& why) {
  if (state_ == State::kLinking) FailAttempt(std::string(why.message()));
}

void AcceptSession::FailAttempt(const std::string& reason) {
  connection().StopLink();
  state_ = State::kOffered;
  Reject(Candidate(candidate_), StrCat("server: ", reason));
  socket()->Send(ControlType::kPathFailed,
                 Encode(PathFailed{attempt_, static_cast<uint32_t>(candidate_), reason}));
}

absl::Status AcceptSession::OnPathFailed(ByteSpan body) {
  WEFT_ASSIGN_OR_RETURN(const PathFailed failed, DecodePathFailed(body));
  if (failed.attempt != 0 && failed.attempt != attempt_) return absl::OkStatus();
  PathCandidate* const candidate = Candidate(failed.candidate);
  if (candidate == nullptr || candidate->outcome != PathCandidate::Outcome::kNotTried) {
    return absl::OkStatus();  // both sides gave it up
  }
  if (failed.attempt != 0) {
    connection().StopLink();
    state_ = State::kOffered;
  }
  Reject(candidate, failed.reason);
  return absl::OkStatus();
}

}  // namespace weft
