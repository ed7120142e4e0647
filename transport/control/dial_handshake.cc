#include "transport/control/dial_handshake.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "transport/control/dialer.h"
#include "transport/control/host_facts.h"
#include "transport/control/negotiate.h"

namespace weft {

using Decision = HandshakeStep::Decision;

DialHandshake::DialHandshake(const OwnSide& own, const OwnConnection& connection, DialTerms terms)
    : own_(own), connection_(connection), terms_(std::move(terms)) {}

HandshakeStep DialHandshake::Begin(const std::string& server_address) {
  state_ = State::kGreeting;
  // A Unix socket's name is its server's; this side may see the file elsewhere.
  server_address_ = server_address.substr(0, 5) == "unix:" ? terms_.server : server_address;
  hello_.versions = kProtocolVersions;
  hello_.features = OwnFeatures();
  hello_.limits = own_.limits;
  hello_.connection_index = connection_.index;
  hello_.connection_token = connection_.token;
  hello_.first_sequence = connection_.first_sequence;
  hello_.batch_proof = connection_.batch_proof;
  hello_.paths = own_.domains->Offers(terms_.policy, own_.clock->NowNs(), connection_.host);
  if (own_.is_secured) {
    for (PathOffer& offer : hello_.paths) WithdrawIfUnsealed(&offer);
  }
  hello_.allow_routed = terms_.policy.allow_routed;
  hello_.first_port = terms_.policy.rdma.first_port;
  hello_.host = ReadHostFacts();
  hello_.hello = terms_.options.hello;
  hello_.wanted_engine = wanted_engine();
  HandshakeStep step;
  step.Send(ControlType::kClientHello, Encode(hello_));
  hello_.hello.clear();
  return step;
}

// --- frames --------------------------------------------------------------------------------------

HandshakeStep DialHandshake::OnFrame(const ControlFrame& frame) {
  absl::StatusOr<HandshakeStep> step = Take(frame);
  if (step.ok()) return *std::move(step);
  return OnProtocolError(step.status(), ControlFrameReader::Greeting::kWeft);
}

HandshakeStep DialHandshake::OnProtocolError(const absl::Status& why,
                                             ControlFrameReader::Greeting) {
  HandshakeStep step;
  step.EndWithBye(why);
  return step;
}

absl::StatusOr<HandshakeStep> DialHandshake::Take(const ControlFrame& frame) {
  switch (frame.type) {
    case ControlType::kServerHello:
      return OnServerHello(frame.body);
    case ControlType::kRefusal: {
      HandshakeStep step;
      step.End(DecodeRefusal(frame.body));
      return step;
    }
    case ControlType::kPathReady:
      return OnPathReady(frame.body);
    case ControlType::kPathFailed:
      return OnPathFailed(frame.body);
    case ControlType::kOpen:
      return OnOpen(frame.body);
    default:
      return absl::DataLossError(
          StrCat("the server sent ", ControlTypeName(frame.type), " during the handshake"));
  }
}

absl::StatusOr<HandshakeStep> DialHandshake::OnServerHello(ByteSpan body) {
  if (state_ != State::kGreeting) return absl::DataLossError("the server sent a second hello");
  WEFT_ASSIGN_OR_RETURN(server_, DecodeServerHello(body, hello_.host.boot_id));
  WEFT_RETURN_IF_ERROR(CheckServerHello(hello_, server_));
  ConnectionFacts& facts = *connection_.facts;
  facts.peer_hello = std::move(server_.hello);
  facts.path.server_engine = server_.engine;
  facts.path.server_engines = server_.engines;
  facts.candidates =
      DescribePairs(server_.candidates, hello_.paths, server_.paths, /*as_client=*/true);
  if (HasViable(facts.candidates)) return TryNext({});
  HandshakeStep step;
  step.End(NoCommonPath(facts.candidates));  // the server has ended as well
  return step;
}

// --- paths ---------------------------------------------------------------------------------------

const PathOffer& DialHandshake::own_offer() const {
  return hello_.paths[static_cast<size_t>(server_.candidates[candidate_].client_offer)];
}

const PathOffer& DialHandshake::peer_offer() const {
  return server_.paths[static_cast<size_t>(server_.candidates[candidate_].server_offer)];
}

absl::StatusOr<FramingDomain*> DialHandshake::OpenDomain() {
  absl::StatusOr<FramingDomain*> domain = own_.domains->Open(own_offer(), own_.clock->NowNs());
  if (domain.ok()) return domain;
  return absl::Status(domain.status().code(), StrCat("client: ", ToStd(domain.status().message())));
}

HandshakeStep DialHandshake::TryNext(HandshakeStep step) {
  const ConnectionFacts& facts = *connection_.facts;
  for (candidate_ = 0; candidate_ < facts.candidates.size(); ++candidate_) {
    if (!IsUntried(facts, candidate_)) continue;
    const absl::StatusOr<FramingDomain*> domain = OpenDomain();
    if (!domain.ok()) {
      Reject(ToStd(domain.status().message()), &step);
      continue;
    }
    if (current().kind == PathKind::kShm && own_.neighbour->doorbell == nullptr) {
      candidate_end_ns_ = own_.clock->NowNs() + terms_.options.link.path_timeout_ns;
      Prove(*domain, &step);
    } else {
      Try(*domain, &step);
    }
    return step;
  }
  step.EndWithBye(absl::UnavailableError(StrCat("no path came up: ", Summary(facts.candidates))));
  return step;
}

void DialHandshake::Prove(FramingDomain* domain, HandshakeStep* step) {
  state_ = State::kProving;
  retry_ns_ = kNever;
  step->decision = Decision::kProve;
  step->proof = ProofPlan{server_.local_socket, server_.local_nonce, server_.host,
                          domain->links().host_descriptor()};
}

HandshakeStep DialHandshake::OnProofBusy() {
  retry_ns_ = own_.clock->NowNs() + Dialer::kBusyRetryNs;
  return {};
}

HandshakeStep DialHandshake::OnProof(absl::StatusOr<Neighbour> neighbour) {
  if (!neighbour.ok()) return GiveUp(ToStd(neighbour.status().message()));
  *own_.neighbour = *std::move(neighbour);
  const absl::StatusOr<FramingDomain*> domain = OpenDomain();  // it may have lost its device
  if (!domain.ok()) return GiveUp(ToStd(domain.status().message()));
  HandshakeStep step;
  Try(*domain, &step);
  return step;
}

void DialHandshake::Try(FramingDomain* domain, HandshakeStep* step) {
  state_ = State::kTrying;
  retry_ns_ = kNever;
  // Opening a provider for the first time takes its time; that is not the path's fault.
  candidate_end_ns_ = own_.clock->NowNs() + terms_.options.link.path_timeout_ns;
  step->Send(ControlType::kPathTry,
             Encode(PathTry{static_cast<uint32_t>(candidate_), domain->links().address(),
                            domain->links().slot_bytes()}));
}

absl::StatusOr<HandshakeStep> DialHandshake::OnPathReady(ByteSpan body) {
  WEFT_ASSIGN_OR_RETURN(const PathReady ready, DecodePathReady(body));
  if (state_ != State::kTrying || ready.candidate != candidate_) return HandshakeStep();
  const absl::StatusOr<FramingDomain*> opened = OpenDomain();  // it may have lost its device
  if (!opened.ok()) return GiveUp(ToStd(opened.status().message()));
  FramingDomain* const domain = *opened;
  state_ = State::kLinking;
  HandshakeStep step;
  step.decision = Decision::kStartLink;
  LinkPlan& plan = step.link.emplace();
  plan.candidate = candidate_;
  plan.domain = domain;
  plan.active = true;
  // tcp joins by the listener that this connection came in by.
  plan.peer.address = current().kind == PathKind::kTcp ? server_address_ : ready.address;
  plan.peer.nonce = ready.nonce.high;
  plan.peer.nonce_low = ready.nonce.low;
  if (current().kind == PathKind::kShm) own_.neighbour->Describe(&plan.peer);
  plan.agreement = Agree(hello_, server_, /*as_client=*/true,
                         std::min(ready.batch_bytes, domain->links().slot_bytes()));
  return step;
}

HandshakeStep DialHandshake::OnLinkUp() {
  HandshakeStep step;
  if (state_ != State::kLinking) return step;
  state_ = State::kConfirming;
  step.Send(ControlType::kPathUp, EncodePathUp(static_cast<uint32_t>(candidate_)));
  return step;
}

HandshakeStep DialHandshake::OnLinkDown(const absl::Status& why) {
  if (!attempting()) return {};
  return GiveUp(StrCat("client: ", ToStd(why.message())));
}

absl::StatusOr<HandshakeStep> DialHandshake::OnPathFailed(ByteSpan body) {
  WEFT_ASSIGN_OR_RETURN(const PathFailed failed, DecodePathFailed(body));
  if (!attempting() || failed.candidate != candidate_) return HandshakeStep();
  RejectCandidate(connection_.facts, candidate_, StrCat("server: ", failed.reason));
  HandshakeStep step;
  step.drop_attempt = true;
  return TryNext(std::move(step));
}

absl::StatusOr<HandshakeStep> DialHandshake::OnOpen(ByteSpan body) {
  WEFT_ASSIGN_OR_RETURN(const uint32_t candidate, DecodeOpen(body));
  if (state_ == State::kGreeting) {
    return absl::DataLossError("the server opened a connection before its hello");
  }
  if (!attempting() || candidate != candidate_) {
    return absl::UnavailableError("a path came up at the moment it was given up");
  }
  if (state_ != State::kConfirming) {
    return absl::DataLossError("the server opened a connection that is not up");
  }
  ChooseCandidate(connection_.facts, candidate_,
                  StrCat(ChosenReason(hello_.host, server_.host, own_offer(), peer_offer()),
                         SealingReason(own_, server_.limits, own_offer().kind)));
  HandshakeStep step;
  step.decision = Decision::kOpen;
  step.peer_limits = server_.limits;
  return step;
}

void DialHandshake::Reject(std::string_view reason, HandshakeStep* step) {
  RejectCandidate(connection_.facts, candidate_, reason);
  step->Send(ControlType::kPathFailed,
             Encode(PathFailed{static_cast<uint32_t>(candidate_), std::string(reason)}));
}

HandshakeStep DialHandshake::GiveUp(std::string_view reason) {
  HandshakeStep step;
  step.drop_attempt = true;
  Reject(reason, &step);
  return TryNext(std::move(step));
}

// --- time ----------------------------------------------------------------------------------------

uint64_t DialHandshake::alarm_ns() const {
  return std::min({terms_.deadline_ns, candidate_end_ns_, retry_ns_});
}

HandshakeStep DialHandshake::OnAlarm() {
  const uint64_t now_ns = own_.clock->NowNs();
  HandshakeStep step;
  if (now_ns >= terms_.deadline_ns) {
    step.EndWithBye(
        ConnectTimeout(terms_.server, terms_.options.link.connect_timeout_ns,
                       state_ == State::kGreeting ? "the server's hello" : "a path to come up",
                       Summary(connection_.facts->candidates)));
  } else if (now_ns >= candidate_end_ns_) {
    return GiveUp(StrCat("it did not come up within ",
                         terms_.options.link.path_timeout_ns / kNsPerMs,
                         " ms (LinkOptions::path_timeout_ns)"));
  } else if (now_ns >= retry_ns_) {
    const absl::StatusOr<FramingDomain*> domain = OpenDomain();
    if (!domain.ok()) return GiveUp(ToStd(domain.status().message()));
    Prove(*domain, &step);
  }
  return step;
}

}  // namespace weft
