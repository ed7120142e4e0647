#include "transport/control/control_connection.h"

#include <utility>

#include "core/check.h"
#include "core/log.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/control/negotiate.h"
#include "transport/framing/seal.h"
#include "transport/sockets/socket.h"

namespace weft {
namespace {

static_assert(kMaxGrantBodyBytes == kMaxGrantBytes);

ControlLimits LimitsOf(const LinkOptions& options, const std::optional<SecurityOptions>& security,
                       const EngineContext& engine, const Nonce128& key) {
  ControlLimits limits;
  limits.window_slots = options.window_slots;
  limits.max_outstanding_operations = options.max_outstanding_operations;
  limits.peer_timeout_ns = options.peer_timeout_ns;
  limits.heartbeats = engine.drives_itself;
  limits.engine_key = key;
  limits.require_encryption = security.has_value() && security->require_encryption;
  return limits;
}

absl::Status PutOutError() {
  return absl::ResourceExhaustedError(
      "too many handshakes are in progress, most of them from this client's host; try again");
}

std::string ReasonOfBye(ByteSpan body) {
  absl::StatusOr<std::string> reason = DecodeBye(body);
  return reason.ok() ? *std::move(reason) : "(no reason)";
}

// The numeric address of this host at which the peer of `fd` has reached it.
std::string OwnHost(int fd) {
  const absl::StatusOr<KernelAddress> own = LocalAddress(fd);
  if (!own.ok()) return "";
  if (own->family() == AF_UNIX) return "127.0.0.1";
  const absl::StatusOr<ServerAddress> address = ParseServerAddress(own->text());
  if (!address.ok()) return "";
  // An IPv4 peer of an IPv6 socket.
  constexpr std::string_view kMapped = "::ffff:";
  const std::string& host = address->host;
  return host.substr(0, kMapped.size()) == kMapped ? host.substr(kMapped.size()) : host;
}

}  // namespace

ControlConnection::ControlConnection(ControlContext* context, Stage stage,
                                     const LinkOptions& options,
                                     const std::optional<SecurityOptions>& security,
                                     const Nonce128& key)
    : context_(context),
      limits_(LimitsOf(options, security, context->engine, key)),
      transfer_timeout_ns_(options.transfer_timeout_ns),
      started_ns_(context->now_ns()),
      stage_(stage) {
  context->members.PushBack(this);
}

// Ours: Finish() comes before the end
ControlConnection::~ControlConnection() { WEFT_CHECK(connection_ == nullptr); }

absl::StatusOr<Connection*> ControlConnection::Dial(ControlContext* context,
                                                    const ServerAddress& server,
                                                    std::vector<KernelAddress> addresses,
                                                    const ConnectOptions& options,
                                                    PathPolicy policy, ConnectionHandler* handler) {
  std::shared_ptr<TlsCredentials> credentials;
  if (options.security.has_value()) {
    WEFT_ASSIGN_OR_RETURN(credentials,
                          context->tls->CredentialsFor(TlsRole::kClient, *options.security));
  }
  std::unique_ptr<ControlConnection> self(
      new ControlConnection(context, Stage::kDialing, options.link, options.security,
                            context->peers->ClientKey(server.text(), credentials.get())));
  if (credentials != nullptr) self->server_ = server;
  self->credentials_ = std::move(credentials);
  WEFT_RETURN_IF_ERROR(self->CreateConnection(handler));
  const uint64_t timeout_ns = options.link.connect_timeout_ns;
  self->dialer_ =
      std::make_unique<Dialer>(server, std::move(addresses), context->engine.poller,
                               self->started_ns_, timeout_ns, [raw = self.get()] { raw->Wake(); });
  self->handshake_.emplace<DialHandshake>(
      self->own_side(), self->own_connection(),
      DialTerms{server.text(), options, std::move(policy), self->started_ns_ + timeout_ns});
  self->Wake();                              // an error of the first dial is no error of this call
  return self.release()->connection_.get();  // the context's from here on
}

void ControlConnection::Accept(ControlContext* context, std::shared_ptr<ListenerState> listener,
                               Descriptor socket) {
  std::unique_ptr<ControlConnection> self(new ControlConnection(
      context, Stage::kHandshake, listener->options.link, listener->options.security, Nonce128()));
  const uint64_t host = PeerHost(socket.get());
  if (!self->TakeSocket(std::move(socket)).ok()) return;
  context->newcomers->AddStranger(self.get(), host, self->started_ns_);
  context->accepted.Increment();
  self->listener_ = std::move(listener);
  self->credentials_ = self->listener_->credentials;
  if (self->has_security()) {
    self->socket_->ExpectTls(self->credentials_.get(), context->tls, self->started_ns_);
  }
  self->handshake_.emplace<AcceptHandshake>(self->own_side(), self->listener_.get());
  self.release()->Perform({});  // the context's from here on
}

absl::Status ControlConnection::CreateConnection(ConnectionHandler* handler) {
  const EngineContext& engine = context_->engine;
  const uint64_t secret = SecureRandom64();
  const FramedConnection::Options options{static_cast<uint32_t>(secret),
                                          static_cast<uint32_t>(secret >> 32),
                                          limits_.max_outstanding_operations,
                                          {engine.clock, engine.timers, transfer_timeout_ns_},
                                          {SecureRandom64(), SecureRandom64()}};
  WEFT_ASSIGN_OR_RETURN(
      connection_, FramedConnection::Create(context_->table, static_cast<ConnectionOwner*>(this),
                                            handler, options));
  return absl::OkStatus();
}

absl::Status ControlConnection::TakeSocket(Descriptor socket) {
  socket_ = std::make_unique<ControlSocket>(std::move(socket), context_->engine.poller,
                                            [this] { OnSocket(); });
  absl::Status status = socket_->Start();
  if (!status.ok()) socket_.reset();
  return status;
}

OwnSide ControlConnection::own_side() {
  return {context_->domains, context_->engine.clock, &neighbour_, limits_, has_security()};
}

// (A client that dials has no socket yet.)
OwnConnection ControlConnection::own_connection() {
  return {connection_->index(),
          connection_->token(),
          connection_->first_sequence(),
          &connection_->facts(),
          limits_.engine_key,
          listener_ == nullptr ? 0 : PeerHost(socket_->fd()),
          connection_->batch_proof(),
          listener_ == nullptr ? "" : OwnHost(socket_->fd())};
}

// --- events --------------------------------------------------------------------------------------

void ControlConnection::Wake() {
  if (stage_ != Stage::kRetired && !context_->ready.IsLinked(this)) context_->ready.PushBack(this);
}

void ControlConnection::SetAlarm(uint64_t deadline_ns) {
  alarm_rang_ = false;
  if (deadline_ns == kNever) return context_->engine.timers->Cancel(this);
  context_->engine.timers->Schedule(this, deadline_ns);
}

void ControlConnection::OnTimer() {
  alarm_rang_ = true;
  Wake();
}

void ControlConnection::OnSocket() {
  if (stage_ == Stage::kOpen || stage_ == Stage::kBroken) ReadFrames();
  if (lifeline_cut() && connection_ != nullptr) connection_->AbandonLink();
  Wake();
}

void ControlConnection::OnLinkUp(FramedConnection&) {
  if (stage_ != Stage::kHandshake) return;
  Perform(Ask([](auto& handshake) { return handshake.OnLinkUp(); }));
}

void ControlConnection::OnBroken(FramedConnection&, const absl::Status& why) {
  if (stage_ == Stage::kHandshake) {
    return Perform(Ask([&why](auto& handshake) { return handshake.OnLinkDown(why); }));
  }
  if (!absl::IsUnavailable(why)) return Fail(why);
  stage_ = Stage::kBroken;
  broken_ = why;
  SetAlarm(context_->now_ns() + kReasonNs);
  Wake();
}

void ControlConnection::OnCloseRequested(FramedConnection&, std::string_view why) {
  Finish(absl::CancelledError(StrCat("closed by this side: ", why)), /*peer_dead=*/false,
         std::string(why));
}

void ControlConnection::SendGrant(FramedConnection&, ByteSpan grant) {
  if (stage_ == Stage::kOpen) socket_->Send(ControlType::kGrant, grant);
}

// --- the stages ----------------------------------------------------------------------------------

void ControlConnection::Run() {
  had_turn_ = true;
  if (socket_ != nullptr) socket_->ReadMore();
  RunStage();
  if (socket_ != nullptr && socket_->has_more()) Wake();
}

void ControlConnection::RunStage() {
  switch (stage_) {
    case Stage::kDialing:
      return RunDialing();
    case Stage::kHandshake:
      return RunHandshake();
    case Stage::kOpen:
    case Stage::kBroken:
      return RunOpen();
    case Stage::kEnding:
      return RunEnding();
    case Stage::kRetired:
      return;
  }
}

void ControlConnection::RunDialing() {
  std::optional<absl::StatusOr<Descriptor>> result = dialer_->Advance(context_->now_ns());
  if (!result.has_value()) return SetAlarm(dialer_->due_ns());
  dialer_.reset();
  absl::Status status = result->ok() ? TakeSocket(**std::move(result)) : result->status();
  if (status.ok() && has_security()) {
    status = socket_->StartTls(credentials_.get(), context_->tls, context_->now_ns(), server_,
                               // Ours: a socket is dialed for this handshake
                               std::get<DialHandshake>(handshake_).wanted_engine());
  }
  if (!status.ok()) return Finish(status, /*peer_dead=*/true, std::nullopt);
  stage_ = Stage::kHandshake;
  // Ours: as above
  Perform(std::get<DialHandshake>(handshake_).Begin(PeerAddressText(socket_->fd())));
}

// Closed by its user meanwhile, inside a callback of another one: RunEvents() ends it.
bool ControlConnection::close_requested() const {
  return connection_ != nullptr && connection_->state() == Connection::State::kClosed;
}

void ControlConnection::RunHandshake() {
  if (close_requested()) return;
  if (put_out_) {
    return connection_ != nullptr ? Fail(PutOutError())
                                  : Finish(PutOutError(), /*peer_dead=*/true, std::nullopt);
  }
  if (std::exchange(alarm_rang_, false)) {
    Perform(Ask([](auto& handshake) { return handshake.OnAlarm(); }));
  }
  if (stage_ == Stage::kHandshake && proof_result_.has_value()) {
    proof_.reset();
    absl::StatusOr<Neighbour> result = *std::exchange(proof_result_, std::nullopt);
    // Ours: who dials proves, and only while the handshake goes on
    Perform(std::get<DialHandshake>(handshake_).OnProof(std::move(result)));
  }
  ControlFrame frame;
  while (stage_ == Stage::kHandshake && !close_requested() && socket_->Receive(&frame)) {
    if (frame.type == ControlType::kBye) return FinishByPeer(ReasonOfBye(frame.body));
    if (LacksSecurity()) {
      const absl::Status why = absl::FailedPreconditionError(
          "the server requires TLS: set `security` in the client's options (SecurityOptions)");
      context_->tls->CountRefused();
      TellRefused(why);
      // Ours: it has a listener, and its handshake goes on
      return Perform(std::get<AcceptHandshake>(handshake_).Refuse(why));
    }
    if (has_security()) link_secrets_.Note(frame.type, frame.body);
    Perform(Ask([&frame](auto& handshake) { return handshake.OnFrame(frame); }));
  }
  if (stage_ == Stage::kOpen) return RunOpen();
  if (stage_ != Stage::kHandshake || close_requested()) return;
  if (const absl::Status skipped = CheckSkipped(); !skipped.ok()) {
    return Perform(Ask(
        [&](auto& handshake) { return handshake.OnProtocolError(skipped, socket_->greeting()); }));
  }
  if (socket_->ended().ok()) return;
  const ControlFrameReader::Greeting greeting = socket_->greeting();
  if (greeting == ControlFrameReader::Greeting::kJoin ||
      greeting == ControlFrameReader::Greeting::kLongJoin) {
    return HandOverSocket(greeting == ControlFrameReader::Greeting::kJoin);
  }
  const absl::Status why = Annotate(socket_->ended(), "during the handshake");
  if (LacksSecurity() && !absl::IsUnavailable(why)) {
    context_->tls->CountRefused();
    TellRefused(why);
  }
  if (socket_->gone()) return Finish(why, /*peer_dead=*/true, std::nullopt);
  Perform(Ask([&](auto& handshake) { return handshake.OnProtocolError(why, greeting); }));
}

bool ControlConnection::LacksSecurity() const {
  return listener_ != nullptr && has_security() && !socket_->is_secured();
}

void ControlConnection::TellRefused(const absl::Status& why) {
  const uint64_t now_ns = context_->now_ns();
  if (now_ns < listener_->next_refusal_log_ns) {
    ++listener_->refusals_not_logged;
    return;
  }
  listener_->next_refusal_log_ns = now_ns + kRefusalLogNs;
  const uint64_t more = std::exchange(listener_->refusals_not_logged, 0);
  WEFT_LOG(kWarning, "a client is refused, ", PeerAddressText(socket_->fd()), ": ",
           ToStd(why.message()), more == 0 ? "" : StrCat(" (", more, " others before it)"));
}

// This was no client's connection, but a socket for a link of one. One that nobody waits for, or
// whose join is not as it should be, is closed without an answer.
void ControlConnection::HandOverSocket(bool is_right) {
  absl::Status status = socket_->ended();
  const Nonce128 nonce = socket_->join();
  Descriptor socket = socket_->Release();
  socket_.reset();
  Finish(absl::CancelledError("the socket is a link's"), /*peer_dead=*/true, std::nullopt);
  if (is_right) status = context_->domains->TakeSocket(std::move(socket), nonce);
  if (!status.ok()) {
    context_->joins_refused.Increment();
    WEFT_LOG_EVERY_N_SEC(kInfo, 10, "a socket is closed: ", ToStd(status.message()));
  }
}

void ControlConnection::RunOpen() {
  ReadFrames();
  DeliverGrants();
  if (bye_.has_value()) return FinishByPeer(*bye_);
  const absl::Status& ended = socket_->ended();
  if (socket_->gone()) {
    return Finish(absl::UnavailableError(StrCat("peer process ended or its host is unreachable (",
                                                ToStd(ended.message()), ")")),
                  /*peer_dead=*/true, std::nullopt);
  }
  if (!ended.ok()) return Fail(ended);
  if (silent_) return FailSilentPeer();
  if (!misconduct_.ok()) return Fail(misconduct_);
  if (stage_ == Stage::kBroken && std::exchange(alarm_rang_, false)) {
    Fail(Annotate(broken_, "the path broke"));
  }
}

void ControlConnection::RunEnding() {
  if (std::exchange(alarm_rang_, false) || socket_ == nullptr || socket_->gone()) Retire();
}

// --- the handshake -------------------------------------------------------------------------------

void ControlConnection::Perform(HandshakeStep step) {
  if (step.drop_attempt) {
    proof_.reset();
    proof_result_.reset();
    connection_->StopLink();
  }
  if (step.link.has_value()) {
    const absl::Status status = StartLink(*std::move(step.link));
    if (!status.ok()) {
      return Perform(Ask([&status](auto& handshake) { return handshake.OnLinkDown(status); }));
    }
  }
  if (step.decision == HandshakeStep::Decision::kOpen && listener_ != nullptr) {
    client_key_ = step.client_key;
    if (put_out_) return Fail(PutOutError());
    context_->newcomers->BecomeClient(this);
  }
  if (!step.raw.empty()) socket_->SendRaw(step.raw);
  for (const HandshakeStep::Message& message : step.send) {
    if (has_security()) link_secrets_.Note(message.type, AsBytes(message.body));
    socket_->Send(message.type, message.body);
  }
  switch (step.decision) {
    case HandshakeStep::Decision::kWait:
    case HandshakeStep::Decision::kStartLink:
      return SetAlarm(Ask([](auto& handshake) { return handshake.alarm_ns(); }));
    case HandshakeStep::Decision::kProve:
      return StartProof(*step.proof);
    case HandshakeStep::Decision::kAdmit:
      return Perform(Admit());
    case HandshakeStep::Decision::kOpen:
      return Open(step.peer_limits);
    case HandshakeStep::Decision::kEnd:
      if (listener_ != nullptr && absl::IsResourceExhausted(step.why)) {
        context_->connections_refused.Increment();
        TellRefused(step.why);
      }
      return Finish(step.why, /*peer_dead=*/false, std::nullopt);
  }
}

absl::Status ControlConnection::StartLink(LinkPlan plan) {
  if (has_security()) {
    WEFT_ASSIGN_OR_RETURN(plan.peer.secret, link_secrets_.Derive(socket_->stream(), plan.peer,
                                                                 plan.domain->links().path().kind));
    plan.peer.kernel_tls = credentials_->options().kernel_tls;
  }
  WEFT_RETURN_IF_ERROR(connection_->StartLink(plan.domain, plan.peer, plan.active, plan.agreement));
  ConnectionFacts& facts = connection_->facts();
  const PathInfo from_hello = std::exchange(facts.path, plan.domain->links().path());
  facts.path.server_engine = from_hello.server_engine;
  facts.path.server_engines = from_hello.server_engines;
  facts.path.client = from_hello.client;
  facts.path.link = facts.candidates[plan.candidate].link;
  // By TLS, or by framing, which leaves out what a card moves unless one side requires it; nobody
  // pretends it of memory that does not leave the host.
  facts.path.is_encrypted = plan.peer.secret.has_value() && facts.path.kind != PathKind::kShm &&
                            (plan.agreement.only_sealed || !IsSealedByFraming(facts.path.kind));
  // Not what the peer says of itself: it is by this that a server knows whose the connection is.
  facts.path.peer = PeerAddressText(socket_->fd());
  facts.path.identity = IdentityOver(facts.path.kind);
  if (facts.path.kind != PathKind::kTcp && facts.path.kind != PathKind::kShm) {
    return absl::OkStatus();
  }
  // These have no other addresses.
  const absl::StatusOr<KernelAddress> own = LocalAddress(socket_->fd());
  if (own.ok()) facts.path.local = own->text();
  return absl::OkStatus();
}

PeerIdentity ControlConnection::IdentityOver(PathKind path) const {
  PeerIdentity identity = socket_->identity();
  if (!AddKernelCredentials(socket_->fd(), &identity)) {
    if (path != PathKind::kShm) return identity;
    identity.user_id = neighbour_.process.user_id;
    identity.group_id = neighbour_.process.group_id;
    identity.process_id = neighbour_.process.id;
  }
  if (identity.authentication == Authentication::kNone) {
    identity.authentication = Authentication::kKernelCredentials;
  }
  return identity;
}

void ControlConnection::StartProof(const ProofPlan& plan) {
  proof_ = std::make_unique<LocalProofClient>(context_->engine.poller, context_->engine.doorbell,
                                              plan.domain_descriptor,
                                              [this](absl::StatusOr<Neighbour> result) {
                                                proof_result_ = std::move(result);
                                                Wake();
                                              });
  const absl::Status status = proof_->Start(plan.local_socket, plan.nonce, plan.server);
  auto& dial = std::get<DialHandshake>(handshake_);  // Ours: its step has asked for this
  if (status.ok()) return SetAlarm(dial.alarm_ns());
  proof_.reset();
  Perform(absl::IsResourceExhausted(status) ? dial.OnProofBusy() : dial.OnProof(status));
}

HandshakeStep ControlConnection::Admit() {
  auto& accept = std::get<AcceptHandshake>(handshake_);  // Ours: its step has asked for this
  // As far as the control connection tells.
  const PeerIdentity client = IdentityOver(PathKind::kTcp);
  const uint64_t client_key = SharedListener::KeyOf(client, PeerHost(socket_->fd()));
  // No path is brought up in vain for a client that has all its connections; of one that only a
  // path tells apart OpenIfBothUp() finds out.
  const auto check_room = [&] { return listener_->CheckRoom(client_key); };
  const bool is_known = client.authentication != Authentication::kNone;
  absl::Status status = is_known ? check_room() : absl::OkStatus();
  if (status.ok()) {
    status = context_->newcomers->BeginHandshake(this, accept.hello_bytes(), context_->now_ns());
  }
  if (status.ok()) status = CreateConnection(/*handler=*/nullptr);
  if (!status.ok()) return accept.Refuse(status);
  limits_.engine_key = context_->peers->ServerKey(client);
  if (!accept.Decide(own_connection())) return accept.EndWithoutPath();
  if (!is_known && !accept.may_share_memory()) status = check_room();
  if (!status.ok()) return accept.Refuse(status);
  // Whether it is let in may depend on who it is. What the kernel knows comes with the path.
  connection_->facts().path.identity = socket_->identity();
  connection_->facts().path.peer = PeerAddressText(socket_->fd());
  connection_->facts().path.client = client_key;
  const absl::StatusOr<ConnectionHandler*> handler = listener_->acceptor->OnIncoming(*connection_);
  if (!handler.ok()) return accept.Refuse(handler.status());
  if (*handler == nullptr) {
    return accept.Refuse(absl::InternalError("the server has no handler for connections"));
  }
  connection_->set_handler(*handler);
  return accept.Offer();
}

void ControlConnection::Open(const ControlLimits& peer) {
  handshake_.emplace<std::monostate>();
  context_->paths->Count(connection_->facts().candidates);
  stage_ = Stage::kOpen;
  neighbour_.CloseDescriptors();
  if (limits_.peer_timeout_ns != 0) SetSilence(socket_->fd(), limits_.peer_timeout_ns);
  heard_bytes_ = socket_->received_bytes();
  context_->peers->Join(this, limits_, peer);
  SetAlarm(kNever);
  connection_->Open();
}

// --- the open connection -------------------------------------------------------------------------

// Takes what has come, without any callback to the connection's user.
void ControlConnection::ReadFrames() {
  if (std::exchange(heard_bytes_, socket_->received_bytes()) != socket_->received_bytes()) {
    context_->peers->OnHeard(this);
  }
  ControlFrame frame;
  while (!bye_.has_value() && misconduct_.ok() && socket_->Receive(&frame)) {
    const bool in_bounds = frame.type == ControlType::kGrant ? grants_.Push(frame.body)
                                                             : context_->peers->OnFrame(this);
    if (!in_bounds)
      misconduct_.Update(absl::DataLossError("the peer floods its control connection"));
    if (frame.type == ControlType::kPathTry || frame.type == ControlType::kPathFailed) {
      misconduct_.Update(
          absl::UnavailableError("the peer gave this path up at the moment it came up"));
    }
    if (frame.type == ControlType::kBye) bye_ = ReasonOfBye(frame.body);
  }
  misconduct_.Update(CheckSkipped());
}

absl::Status ControlConnection::CheckSkipped() {
  const uint64_t count = socket_->skipped_frames() - judged_skipped_;
  if (count == 0) return absl::OkStatus();
  judged_skipped_ += count;
  const uint64_t now_ns = context_->now_ns();
  if (!skip_budget_.permits(now_ns, count)) {
    return absl::DataLossError(
        StrCat("the peer floods its control connection with messages that this side does not know: "
               "more than ",
               kSkippedAtOnce, " at once, or one in ", kSkippedIntervalNs / kNsPerMs, " ms"));
  }
  skip_budget_.Take(now_ns, count);
  return absl::OkStatus();
}

// What users are told may close the connection, which ends it later.
void ControlConnection::DeliverGrants() {
  for (int count = 0; count < GrantQueue::kPerTurn && !grants_.empty(); ++count) {
    connection_->OnGrant(grants_.Pop());
  }
  if (!grants_.empty()) Wake();
}

void ControlConnection::OnSilent() {
  silent_ = true;
  connection_->AbandonLink();
  Wake();
}

void ControlConnection::FailSilentPeer() {
  const std::string limit =
      StrCat(limits_.peer_timeout_ns / kNsPerMs, " ms (LinkOptions::peer_timeout_ns)");
  WEFT_LOG_EVERY_N_SEC(kInfo, 1, "a peer is given up: nothing heard for ", limit);
  // If it wakes up it should know what has happened.
  Finish(absl::UnavailableError(StrCat("peer is silent: nothing heard for ", limit,
                                       "; its process is stopped, or its host out of reach")),
         /*peer_dead=*/true, StrCat("it heard nothing of this side for ", limit));
}

// --- the end -------------------------------------------------------------------------------------

void ControlConnection::Shutdown() {
  Finish(absl::CancelledError("the engine ends"), /*peer_dead=*/false, "its engine ends");
  if (stage_ != Stage::kRetired) Retire();
}

void ControlConnection::PutOut() {
  put_out_ = true;
  Wake();
}

bool ControlConnection::tries_path() const {
  const auto* const accept = std::get_if<AcceptHandshake>(&handshake_);
  return accept != nullptr && accept->state() == AcceptHandshake::State::kLinking;
}

void ControlConnection::FinishByPeer(const std::string& reason) {
  Finish(absl::UnavailableError(StrCat("peer closed: ", reason)), /*peer_dead=*/false,
         std::nullopt);
}

void ControlConnection::Fail(const absl::Status& why) {
  Finish(why, /*peer_dead=*/false, std::string(why.message()));
}

void ControlConnection::Finish(const absl::Status& why, bool peer_dead,
                               const std::optional<std::string>& bye) {
  if (stage_ == Stage::kEnding || stage_ == Stage::kRetired) return;
  if (stage_ == Stage::kHandshake && connection_ != nullptr) {
    context_->paths->Count(connection_->facts().candidates);
  }
  stage_ = Stage::kEnding;
  SetAlarm(kNever);
  context_->newcomers->Leave(this);
  context_->peers->Leave(this);
  if (client_key_.has_value()) {
    listener_->EndConnection(*client_key_);
    client_key_.reset();
  }
  if (listener_ != nullptr) context_->accepted.Sub(1);
  dialer_.reset();
  proof_.reset();
  if (connection_ != nullptr) {
    // The link ends before the last words are sent: what it still carries comes first.
    connection_->End(why, peer_dead || silent_ || lifeline_cut());
    connection_.reset();
  }
  handshake_.emplace<std::monostate>();
  neighbour_.doorbell.reset();
  neighbour_.CloseDescriptors();
  if (socket_ != nullptr && bye.has_value()) socket_->Send(ControlType::kBye, EncodeBye(*bye));
  Linger();
}

void ControlConnection::Linger() {
  if (socket_ == nullptr || socket_->gone() || socket_->is_shaking_hands() ||
      context_->lingering >= kMaxLingering) {
    return Retire();
  }
  lingering_ = true;
  ++context_->lingering;
  SetAlarm(context_->now_ns() + kLingerNs);
  socket_->Linger();
}

void ControlConnection::Retire() {
  if (std::exchange(lingering_, false)) --context_->lingering;
  stage_ = Stage::kRetired;
  SetAlarm(kNever);
  socket_.reset();
  context_->ready.Remove(this);
  context_->members.Remove(this);
  context_->retired.PushBack(this);
}

}  // namespace weft
