#include "transport/control/accept_handshake.h"

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

using Decision = HandshakeStep::Decision;

AcceptHandshake::AcceptHandshake(const OwnSide& own, ListenerState* listener)
    : own_(own),
      listener_(listener),
      deadline_ns_(own.clock->NowNs() + listener->options.link.connect_timeout_ns) {}

void AcceptHandshake::ForgetNonce() {
  const auto found = listener_->awaited.find(server_.local_nonce.high);
  if (found != listener_->awaited.end() && found->second == this) listener_->awaited.erase(found);
}

HandshakeStep AcceptHandshake::OnAlarm() {
  HandshakeStep step;
  if (own_.clock->NowNs() < deadline_ns_) return step;
  if (state_ == State::kGreeting) {
    step.End(absl::UnavailableError("the client sent no hello in time"));
  } else {
    step.EndWithBye(absl::UnavailableError(
        StrCat("the handshake was not complete within ",
               listener_->options.link.connect_timeout_ns / kNsPerMs, " ms")));
  }
  return step;
}

HandshakeStep AcceptHandshake::OnProtocolError(const absl::Status& why,
                                               ControlFrameReader::Greeting greeting) {
  HandshakeStep step;
  switch (greeting) {
    case ControlFrameReader::Greeting::kHttp:
      step.raw = kHttpAnswer;
      break;
    case ControlFrameReader::Greeting::kTls:  // so it learns that this is Weft, without TLS
    case ControlFrameReader::Greeting::kOtherVersion:
      step.raw = AsStringView(EncodePreamble());  // tells the client which version there is
      break;
    case ControlFrameReader::Greeting::kWeft:
      if (state_ == State::kGreeting) return Refuse(why);
      step.EndWithBye(why);
      return step;
    case ControlFrameReader::Greeting::kJoin:  // the control connection's business
    case ControlFrameReader::Greeting::kLongJoin:
    case ControlFrameReader::Greeting::kNone:
    case ControlFrameReader::Greeting::kForeign:
      break;
  }
  step.End(why);
  return step;
}

HandshakeStep AcceptHandshake::Refuse(const absl::Status& why) {
  HandshakeStep step;
  step.Send(ControlType::kRefusal, EncodeRefusal(why));
  step.End(why);
  return step;
}

// --- the hello -----------------------------------------------------------------------------------

HandshakeStep AcceptHandshake::OnFrame(const ControlFrame& frame) {
  absl::StatusOr<HandshakeStep> step = Take(frame);
  if (step.ok()) return *std::move(step);
  return OnProtocolError(step.status(), ControlFrameReader::Greeting::kWeft);
}

absl::StatusOr<HandshakeStep> AcceptHandshake::Take(const ControlFrame& frame) {
  if (state_ == State::kGreeting) {
    if (frame.type == ControlType::kClientHello) return OnClientHello(frame.body);
    return absl::DataLossError(
        StrCat("the client began with ", ControlTypeName(frame.type), " instead of its hello"));
  }
  switch (frame.type) {
    case ControlType::kPathTry:
      return OnPathTry(frame.body);
    case ControlType::kPathUp:
      return OnPathUp(frame.body);
    case ControlType::kPathFailed:
      return OnPathFailed(frame.body);
    default:
      return absl::DataLossError(
          StrCat("the client sent ", ControlTypeName(frame.type), " during the handshake"));
  }
}

absl::StatusOr<HandshakeStep> AcceptHandshake::OnClientHello(ByteSpan body) {
  WEFT_ASSIGN_OR_RETURN(client_, DecodeClientHello(body, ReadHostFacts().boot_id));
  hello_bytes_ = body.size();
  if (listener_->acceptor == nullptr) return absl::UnavailableError("the server stops listening");
  WEFT_ASSIGN_OR_RETURN(server_.version, NegotiateVersion(client_.versions, kProtocolVersions));
  // Whoever it is: nobody has this key. OpenIfBothUp() knows it.
  WEFT_RETURN_IF_ERROR(listener_->CheckRoom(/*client_key=*/0));
  HandshakeStep step;
  step.decision = Decision::kAdmit;
  return step;
}

// Fills the ServerHello in, all but what Offer() adds.
bool AcceptHandshake::Decide(const OwnConnection& connection) {
  connection_ = connection;
  server_.features = NegotiateFeatures(client_.features, OwnFeatures());
  server_.limits = own_.limits;
  server_.limits.engine_key = connection.engine_key;
  server_.connection_index = connection.index;
  server_.connection_token = connection.token;
  server_.first_sequence = connection.first_sequence;
  server_.batch_proof = connection.batch_proof;
  server_.engine = listener_->number;
  server_.engines = listener_->shared->engines();
  server_.host = ReadHostFacts();
  // The client knows which of its connections this is.
  PathPolicy policy = listener_->policy;
  policy.rdma.first_port = client_.first_port;
  server_.paths = own_.domains->Offers(policy, own_.clock->NowNs(), connection_.host);
  for (PathOffer& offer : server_.paths) {
    if (own_.is_secured) WithdrawIfUnsealed(&offer);
    if (offer.kind == PathKind::kShm && offer.unavailable.empty() &&
        listener_->local_socket.empty()) {
      offer.unavailable = "no local socket could be opened";
    }
  }
  server_.candidates = NegotiatePaths(client_, server_, policy.allow_routed);
  ConnectionFacts& facts = *connection.facts;
  facts.candidates =
      DescribePairs(server_.candidates, client_.paths, server_.paths, /*as_client=*/false);
  OpenDomains();
  facts.peer_hello = std::move(client_.hello);
  facts.path.server_engine = server_.engine;
  facts.path.server_engines = server_.engines;
  facts.engine_wanted = client_.wanted_engine != kAnyEngine;
  return HasViable(facts.candidates);
}

// A path that the client may choose must be there. Of several RDMA addresses the first that can be
// opened will do: the others are opened if the client comes to try them.
void AcceptHandshake::OpenDomains() {
  bool rdma_is_open = false;
  for (size_t i = 0; i < server_.candidates.size(); ++i) {
    PathPair& pair = server_.candidates[i];
    if (!pair.rejected.empty()) continue;
    const PathOffer& own = server_.paths[static_cast<size_t>(pair.server_offer)];
    const bool is_rdma = own.kind == PathKind::kVerbs;
    if (is_rdma && rdma_is_open) continue;
    const absl::StatusOr<FramingDomain*> domain = OpenDomain(own);
    if (domain.ok()) {
      rdma_is_open = rdma_is_open || is_rdma;
      continue;
    }
    pair.rejected = StrCat("server: ", ToStd(domain.status().message()));
    RejectCandidate(connection_.facts, i, pair.rejected);
  }
}

// The client learns every reason from the verdicts.
HandshakeStep AcceptHandshake::EndWithoutPath() {
  HandshakeStep step;
  step.Send(ControlType::kServerHello, Encode(server_));
  step.End(NoCommonPath(connection_.facts->candidates));
  return step;
}

HandshakeStep AcceptHandshake::Offer() {
  state_ = State::kOffered;
  deadline_ns_ = own_.clock->NowNs() + listener_->options.link.connect_timeout_ns;
  server_.hello = listener_->options.hello;
  if (may_share_memory()) {  // one nonce, however many candidates a client makes of it
    server_.local_socket = listener_->local_socket;
    server_.local_nonce = {SecureRandom64(), SecureRandom64()};
    listener_->awaited[server_.local_nonce.high] = this;
  }
  HandshakeStep step;
  step.Send(ControlType::kServerHello, Encode(server_));
  server_.hello.clear();
  return step;
}

bool AcceptHandshake::may_share_memory() const {
  const std::vector<PathCandidate>& candidates = connection_.facts->candidates;
  return std::any_of(candidates.begin(), candidates.end(), [](const PathCandidate& candidate) {
    return candidate.kind == PathKind::kShm &&
           candidate.outcome == PathCandidate::Outcome::kNotTried;
  });
}

absl::StatusOr<HandOver> AcceptHandshake::TakeNeighbour(const Nonce128& nonce,
                                                        Neighbour* neighbour) {
  if (!IsAwaiting(nonce)) return absl::NotFoundError("no handshake waits for this nonce");
  WEFT_RETURN_IF_ERROR(CheckProcessId(client_.host.process_id, neighbour->process.id));
  if (own_.neighbour->doorbell != nullptr) {
    return absl::AlreadyExistsError("the nonce has been used");
  }
  const auto offer = std::find_if(server_.paths.begin(), server_.paths.end(),
                                  [](const PathOffer& o) { return o.kind == PathKind::kShm; });
  if (offer == server_.paths.end()) return absl::NotFoundError("shared memory is not offered");
  WEFT_ASSIGN_OR_RETURN(FramingDomain* const domain, OpenDomain(*offer));
  WEFT_ASSIGN_OR_RETURN(const int link, domain->links().NewLinkMemory());
  neighbour->link.Reset(link);
  *own_.neighbour = std::move(*neighbour);
  return HandOver{domain->links().host_descriptor(), link};
}

// --- paths ---------------------------------------------------------------------------------------

const PathOffer& AcceptHandshake::own_offer() const {
  return server_.paths[static_cast<size_t>(server_.candidates[candidate_].server_offer)];
}

const PathOffer& AcceptHandshake::peer_offer() const {
  return client_.paths[static_cast<size_t>(server_.candidates[candidate_].client_offer)];
}

absl::StatusOr<HandshakeStep> AcceptHandshake::OnPathTry(ByteSpan body) {
  WEFT_ASSIGN_OR_RETURN(const PathTry wanted, DecodePathTry(body));
  if (wanted.candidate < next_candidate_) {
    return absl::DataLossError(StrCat("the client tries the candidate ", wanted.candidate,
                                      " again, or after a later one"));
  }
  if (!IsUntried(*connection_.facts, wanted.candidate)) {
    return absl::DataLossError(
        StrCat("the client tries the candidate ", wanted.candidate, ", which is ruled out"));
  }
  candidate_ = wanted.candidate;
  next_candidate_ = candidate_ + 1;
  state_ = State::kLinking;
  link_up_ = peer_up_ = false;
  absl::StatusOr<HandshakeStep> step = StartAttempt(wanted);
  if (!step.ok()) return FailAttempt(ToStd(step.status().message()));
  step->drop_attempt = true;  // an earlier one, if the client did not say that it failed
  return step;
}

absl::StatusOr<HandshakeStep> AcceptHandshake::StartAttempt(const PathTry& wanted) {
  HandshakeStep step;
  step.decision = Decision::kStartLink;
  LinkPlan& plan = step.link.emplace();
  plan.candidate = candidate_;
  plan.peer.address = wanted.address;
  plan.peer.nonce = SecureRandom64();
  plan.peer.nonce_low = SecureRandom64();
  // So the engine that accepts its socket knows which engine waits for it.
  if (own_offer().kind == PathKind::kTcp) {
    plan.peer.nonce = SharedListener::WithNumber(plan.peer.nonce, listener_->number);
  }
  if (own_offer().kind == PathKind::kShm) {
    if (own_.neighbour->doorbell == nullptr) {
      return absl::FailedPreconditionError("the client has not shown that it is on this host");
    }
    own_.neighbour->Describe(&plan.peer);
  }
  WEFT_ASSIGN_OR_RETURN(plan.domain, OpenDomain(own_offer()));
  const LinkDomain& links = plan.domain->links();
  plan.agreement = Agree(client_, server_, /*as_client=*/false,
                         std::min(wanted.batch_bytes, links.slot_bytes()));
  step.Send(ControlType::kPathReady, Encode(PathReady{wanted.candidate,
                                                      links.address(),
                                                      {plan.peer.nonce, plan.peer.nonce_low},
                                                      links.slot_bytes()}));
  return step;
}

HandshakeStep AcceptHandshake::OnLinkUp() {
  if (state_ != State::kLinking) return {};
  link_up_ = true;
  return OpenIfBothUp();
}

absl::StatusOr<HandshakeStep> AcceptHandshake::OnPathUp(ByteSpan body) {
  WEFT_ASSIGN_OR_RETURN(const uint32_t candidate, DecodePathUp(body));
  if (state_ != State::kLinking || candidate != candidate_) return HandshakeStep();
  peer_up_ = true;
  return OpenIfBothUp();
}

HandshakeStep AcceptHandshake::OpenIfBothUp() {
  HandshakeStep step;
  if (!link_up_ || !peer_up_) return step;
  // Others may have come first. The control connection gives it back.
  step.client_key = SharedListener::KeyOf(connection_.facts->path.identity, connection_.peer_host);
  const absl::Status taken = listener_->TakeConnection(step.client_key);
  if (!taken.ok()) return Refuse(taken);
  ChooseCandidate(connection_.facts, candidate_,
                  StrCat(ChosenReason(server_.host, client_.host, own_offer(), peer_offer()),
                         SealingReason(own_, client_.limits, own_offer().kind)));
  step.Send(ControlType::kOpen, EncodeOpen(static_cast<uint32_t>(candidate_)));
  step.decision = Decision::kOpen;
  step.peer_limits = client_.limits;
  return step;
}

HandshakeStep AcceptHandshake::OnLinkDown(const absl::Status& why) {
  if (state_ != State::kLinking) return {};
  return FailAttempt(ToStd(why.message()));
}

HandshakeStep AcceptHandshake::FailAttempt(std::string_view reason) {
  state_ = State::kOffered;
  RejectCandidate(connection_.facts, candidate_, StrCat("server: ", reason));
  HandshakeStep step;
  step.drop_attempt = true;
  step.Send(ControlType::kPathFailed,
            Encode(PathFailed{static_cast<uint32_t>(candidate_), std::string(reason)}));
  return step;
}

absl::StatusOr<HandshakeStep> AcceptHandshake::OnPathFailed(ByteSpan body) {
  WEFT_ASSIGN_OR_RETURN(const PathFailed failed, DecodePathFailed(body));
  HandshakeStep step;
  if (!IsUntried(*connection_.facts, failed.candidate)) return step;  // both sides gave it up
  if (state_ == State::kLinking && failed.candidate == candidate_) {
    state_ = State::kOffered;
    step.drop_attempt = true;
  }
  RejectCandidate(connection_.facts, failed.candidate, failed.reason);
  return step;
}

}  // namespace weft
