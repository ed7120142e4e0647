#include "transport/control/dial_session.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "transport/control/host_facts.h"
#include "transport/control/negotiate.h"
#include "transport/control/socket.h"

namespace weft {
namespace {

// A Unix socket whose queue is full says nothing when it has room again.
constexpr uint64_t kBusyRetryNs = 5'000'000;

std::string Milliseconds(uint64_t ns) { return StrCat(ns / kNsPerMs, " ms"); }

// Where the server's host is reached over the internet protocols, as this side reached it.
std::string HostOf(const ServerAddress& address, int fd) {
  if (address.kind == ServerAddress::Kind::kUnix) return "127.0.0.1";
  const absl::StatusOr<ServerAddress> peer = ParseServerAddress(PeerAddressText(fd));
  if (!peer.ok()) return "";
  // An IPv4 peer of an IPv6 socket.
  constexpr std::string_view kMapped = "::ffff:";
  if (peer->host.substr(0, kMapped.size()) == kMapped) return peer->host.substr(kMapped.size());
  return peer->host;
}

absl::Status NoPathCameUp(const std::vector<PathCandidate>& candidates) {
  return absl::UnavailableError(StrCat("no path came up: ", Summary(candidates)));
}

}  // namespace

DialSession::DialSession(ControlContext* context, ServerAddress address,
                         std::vector<KernelAddress> kernel_addresses, const ConnectOptions& options,
                         PathPolicy policy)
    : ControlSession(context),
      address_(std::move(address)),
      kernel_addresses_(std::move(kernel_addresses)),
      options_(options),
      policy_(std::move(policy)) {}

absl::StatusOr<Connection*> DialSession::Start(ConnectionHandler* handler) {
  WEFT_RETURN_IF_ERROR(CreateConnection(handler, options_.link));
  connect_deadline_ns_ = context().now_ns() + options_.link.connect_timeout_ns;
  retry_ns_ = context().now_ns();
  Wake();  // the rest happens in Poll(): an error of the first dial is no error of this call
  ScheduleAlarm();
  return &connection();
}

void DialSession::Advance() {
  if (state_ == State::kDialing) return FinishDialing();
  if (state_ == State::kProving && proof_result_.has_value()) FinishProof();
}

// --- dialing -------------------------------------------------------------------------------------

void DialSession::DialNext() {
  retry_ns_ = kNever;
  dial_decided_ = false;
  while (next_address_ < kernel_addresses_.size()) {
    const KernelAddress& target = kernel_addresses_[next_address_];
    absl::StatusOr<Descriptor> descriptor = StartDial(target);
    dial_error_ = descriptor.status();
    if (descriptor.ok()) dial_error_ = TakeSocket(*std::move(descriptor), /*dialing=*/true);
    if (dial_error_.ok()) {
      const uint64_t share =
          options_.link.connect_timeout_ns / (kernel_addresses_.size() - next_address_);
      step_deadline_ns_ = context().now_ns() + share;
      return ScheduleAlarm();
    }
    if (absl::IsResourceExhausted(dial_error_) && address_.kind == ServerAddress::Kind::kUnix) {
      retry_ns_ = context().now_ns() + kBusyRetryNs;
      return ScheduleAlarm();
    }
    ++next_address_;
  }
  Finish(dial_error_, /*peer_dead=*/true, std::nullopt);
}

// Called whenever something may have happened.
void DialSession::FinishDialing() {
  if (retry_ns_ <= context().now_ns()) return DialNext();
  if (socket() == nullptr || !std::exchange(dial_decided_, false)) return;
  dial_error_ = FinishDial(socket()->fd(), kernel_addresses_[next_address_]);
  if (dial_error_.ok()) return Greet();
  DropSocket();
  ++next_address_;
  DialNext();
}

void DialSession::Greet() {
  state_ = State::kGreeting;
  step_deadline_ns_ = kNever;
  hello_.versions = kProtocolVersions;
  hello_.features = OwnFeatures();
  hello_.limits = OwnLimits();
  hello_.connection_index = connection().index();
  hello_.connection_token = connection().token();
  hello_.paths = context().Offers(policy_);
  hello_.allow_routed = policy_.allow_routed;
  hello_.host = ReadHostFacts();
  hello_.hello = options_.hello;
  socket()->Dialed();
  socket()->SendPreamble();
  socket()->Send(ControlType::kClientHello, Encode(hello_));
  ScheduleAlarm();
}

// --- frames --------------------------------------------------------------------------------------

absl::Status DialSession::OnFrame(const ControlFrame& frame) {
  switch (frame.type) {
    case ControlType::kServerHello:
      return OnServerHello(frame.body);
    case ControlType::kRefusal:
      Finish(DecodeRefusal(frame.body), /*peer_dead=*/false, std::nullopt);
      return absl::OkStatus();
    case ControlType::kPathReady:
      return OnPathReady(frame.body);
    case ControlType::kPathFailed:
      return OnPathFailed(frame.body);
    case ControlType::kOpen:
      return OnOpen(frame.body);
    case ControlType::kPathUp:
      return absl::OkStatus();  // the server's Open says more
    default:
      return absl::DataLossError(
          StrCat("the server sent ", ControlTypeName(frame.type), " during the handshake"));
  }
}

absl::Status DialSession::OnServerHello(ByteSpan body) {
  if (state_ != State::kGreeting) return absl::DataLossError("the server sent a second hello");
  WEFT_ASSIGN_OR_RETURN(server_, DecodeServerHello(body));
  WEFT_RETURN_IF_ERROR(CheckServerHello(hello_, server_));
  connection().facts().peer_hello = std::move(server_.hello);
  connection().facts().candidates =
      DescribePairs(server_.candidates, hello_.paths, server_.paths, /*as_client=*/true);
  if (!HasViable(connection().facts().candidates)) {
    // The server has ended as well.
    Finish(NoCommonPath(connection().facts().candidates), /*peer_dead=*/false, std::nullopt);
    return absl::OkStatus();
  }
  TryNext();
  return absl::OkStatus();
}

const PathOffer& DialSession::own_offer() const {
  return hello_.paths[static_cast<size_t>(server_.candidates[candidate_].client_offer)];
}

const PathOffer& DialSession::peer_offer() const {
  return server_.paths[static_cast<size_t>(server_.candidates[candidate_].server_offer)];
}

// --- paths ---------------------------------------------------------------------------------------

void DialSession::TryNext() {
  const std::vector<PathCandidate>& candidates = connection().facts().candidates;
  candidate_ = 0;
  attempting_ = false;
  proof_result_.reset();
  while (candidate_ < candidates.size() &&
         candidates[candidate_].outcome != PathCandidate::Outcome::kNotTried) {
    ++candidate_;
  }
  if (candidate_ == candidates.size()) return Fail(NoPathCameUp(candidates));
  step_deadline_ns_ = context().now_ns() + options_.link.path_timeout_ns;
  if (current().kind != PathKind::kShm || neighbour_.doorbell != nullptr) return StartTry();
  state_ = State::kProving;
  TryAgainToProve();
}

void DialSession::TryAgainToProve() {
  retry_ns_ = kNever;
  const absl::StatusOr<FramingDomain*> domain =
      context().domains->Open(own_offer(), context().now_ns());
  if (!domain.ok()) return GiveUpPath(StrCat("client: ", ToStd(domain.status().message())));
  proof_ = std::make_unique<LocalProofClient>(context().engine.poller, context().engine.doorbell,
                                              (*domain)->links().host_descriptor(),
                                              static_cast<LocalProofResult*>(this));
  const absl::Status status =
      proof_->Start(server_.local_socket, server_.local_nonce, server_.host);
  if (status.ok()) return ScheduleAlarm();
  proof_.reset();
  if (!absl::IsResourceExhausted(status)) return GiveUpPath(std::string(status.message()));
  retry_ns_ = context().now_ns() + kBusyRetryNs;
  ScheduleAlarm();
}

void DialSession::OnLocalProof(absl::StatusOr<Neighbour> neighbour) {
  proof_result_ = std::move(neighbour);
  Wake();
}

void DialSession::FinishProof() {
  proof_.reset();
  absl::StatusOr<Neighbour> neighbour = *std::exchange(proof_result_, std::nullopt);
  if (!neighbour.ok()) return GiveUpPath(std::string(neighbour.status().message()));
  neighbour_ = *std::move(neighbour);
  StartTry();
}

void DialSession::StartTry() {
  const absl::StatusOr<FramingDomain*> domain =
      context().domains->Open(own_offer(), context().now_ns());
  if (!domain.ok()) return GiveUpPath(StrCat("client: ", ToStd(domain.status().message())));
  state_ = State::kTrying;
  attempting_ = true;
  // Opening a provider for the first time takes its time; that is not the path's fault.
  step_deadline_ns_ = context().now_ns() + options_.link.path_timeout_ns;
  ++attempt_;
  socket()->Send(ControlType::kPathTry,
                 Encode(PathTry{attempt_, static_cast<uint32_t>(candidate_),
                                (*domain)->links().address(), (*domain)->links().slot_bytes()}));
  ScheduleAlarm();
}

absl::Status DialSession::OnPathReady(ByteSpan body) {
  WEFT_ASSIGN_OR_RETURN(const PathReady ready, DecodePathReady(body));
  if (ready.attempt != attempt_ || state_ != State::kTrying) return absl::OkStatus();
  const PathKind kind = current().kind;
  // Lost since the attempt began, or open.
  const absl::StatusOr<FramingDomain*> opened =
      context().domains->Open(own_offer(), context().now_ns());
  if (!opened.ok()) {
    GiveUpPath(StrCat("client: ", ToStd(opened.status().message())));
    return absl::OkStatus();
  }
  FramingDomain* const domain = *opened;
  LinkPeer peer;
  peer.address = context().domains->Complete(kind, ready.address, HostOf(address_, socket()->fd()));
  peer.nonce = ready.nonce;
  if (kind == PathKind::kShm) {
    neighbour_.Describe(&peer);
  }
  const LinkAgreement agreement{server_.connection_index,
                                server_.connection_token,
                                server_.limits.window_slots,
                                options_.link.window_slots,
                                std::min(ready.batch_bytes, domain->links().slot_bytes()),
                                HasFeature(server_.features, kRequestsFeature),
                                HasFeature(server_.features, kLeasesFeature)};
  state_ = State::kLinking;
  const absl::Status status = StartLink(candidate_, domain, peer, /*active=*/true, agreement);
  if (!status.ok()) GiveUpPath(StrCat("client: ", ToStd(status.message())));
  return absl::OkStatus();
}

void DialSession::OnPathUp() {
  if (state_ != State::kLinking) return;
  state_ = State::kConfirming;
  socket()->Send(ControlType::kPathUp, EncodePathUp(attempt_));
}

void DialSession::OnPathBroken(const absl::Status& why) {
  if (!attempting_) return;
  GiveUpPath(StrCat("client: ", ToStd(why.message())));
}

absl::Status DialSession::OnPathFailed(ByteSpan body) {
  WEFT_ASSIGN_OR_RETURN(const PathFailed failed, DecodePathFailed(body));
  if (failed.attempt != attempt_ || !attempting_) return absl::OkStatus();
  connection().StopLink();
  Reject(&current(), StrCat("server: ", failed.reason));
  TryNext();
  return absl::OkStatus();
}

absl::Status DialSession::OnOpen(ByteSpan body) {
  WEFT_ASSIGN_OR_RETURN(const uint32_t attempt, DecodeOpen(body));
  if (attempt != attempt_ || !attempting_) {
    return absl::UnavailableError("a path came up at the moment it was given up");
  }
  if (state_ != State::kConfirming) {
    return absl::DataLossError("the server opened a connection that is not up");
  }
  state_ = State::kDone;
  Opened(candidate_, ChosenReason(hello_.host, server_.host, own_offer(), peer_offer()),
         server_.limits);
  return absl::OkStatus();
}

void DialSession::GiveUpPath(const std::string& reason) {
  connection().StopLink();
  proof_.reset();
  Reject(&current(), reason);
  socket()->Send(
      ControlType::kPathFailed,
      Encode(PathFailed{attempting_ ? attempt_ : 0, static_cast<uint32_t>(candidate_), reason}));
  TryNext();
}

// --- time ----------------------------------------------------------------------------------------

void DialSession::ScheduleAlarm() {
  SetAlarm(std::min({connect_deadline_ns_, step_deadline_ns_, retry_ns_}));
}

void DialSession::OnHandshakeAlarm() {
  const uint64_t now_ns = context().now_ns();
  if (now_ns >= connect_deadline_ns_) return OnTimeout();
  if (now_ns >= step_deadline_ns_) {
    if (state_ != State::kDialing) {
      return GiveUpPath(StrCat("it did not come up within ",
                               Milliseconds(options_.link.path_timeout_ns),
                               " (LinkOptions::path_timeout_ns)"));
    }
    dial_error_ = absl::UnavailableError(
        StrCat("connect to ", kernel_addresses_[next_address_].text(), ": no answer"));
    DropSocket();
    ++next_address_;
    return DialNext();
  }
  if (now_ns >= retry_ns_) {
    if (state_ == State::kProving) return TryAgainToProve();
    if (state_ == State::kDialing) return;  // Advance() comes next, and dials
  }
  ScheduleAlarm();  // a tick early, or a deadline that has moved
}

void DialSession::OnTimeout() {
  const char* waiting = state_ == State::kDialing    ? "the connection to be accepted"
                        : state_ == State::kGreeting ? "the server's hello"
                                                     : "a path to come up";
  std::string text =
      StrCat("connect to ", address_.text(), ": no success within ",
             Milliseconds(options_.link.connect_timeout_ns), ", waiting for ", waiting);
  if (!dial_error_.ok()) text = StrCat(text, " (", ToStd(dial_error_.message()), ")");
  const std::string tried = Summary(connection().facts().candidates);
  if (!tried.empty()) text = StrCat(text, " (", tried, ")");
  Fail(absl::UnavailableError(text));
}

void DialSession::OnFinish() { proof_.reset(); }

}  // namespace weft
