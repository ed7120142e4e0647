#include "transport/sim/sim_transport.h"

#include <utility>

#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/connection_quota.h"

namespace weft {
namespace {

constexpr std::string_view kScheme = "sim:";
constexpr uint32_t kMaxConnections = 65536;  // of one node; 2 MiB of addresses
constexpr size_t kControlBytes = 128;        // on the wire, apart from hellos

// PathInfo::client of a peer on this node.
uint64_t ClientNumberOf(SimFabric::NodeId node) { return uint64_t{node} + 1; }

absl::StatusOr<std::string> ListenerName(const std::string& address) {
  if (address.rfind(kScheme, 0) != 0 || address.size() == kScheme.size()) {
    return absl::InvalidArgumentError(
        StrCat("\"", address, "\" is no address of the simulated network: write \"sim:NAME\""));
  }
  return address.substr(kScheme.size());
}

absl::Status CheckOptions(const LinkOptions& options, const std::string& hello) {
  if (options.window_slots < kMinWindowSlots || options.window_slots > kMaxWindowSlots) {
    return absl::InvalidArgumentError(StrCat("LinkOptions::window_slots is ", options.window_slots,
                                             "; ", kMinWindowSlots, " to ", kMaxWindowSlots,
                                             " are possible"));
  }
  if (options.max_outstanding_operations < 1 || options.max_outstanding_operations > 1024) {
    return absl::InvalidArgumentError(StrCat("LinkOptions::max_outstanding_operations is ",
                                             options.max_outstanding_operations,
                                             "; 1 to 1024 are possible"));
  }
  if (hello.size() > kMaxHelloBytes) {
    return absl::InvalidArgumentError(
        StrCat("a hello of ", hello.size(), " bytes; up to ", kMaxHelloBytes, " are possible"));
  }
  return absl::OkStatus();
}

}  // namespace

class SimTransport::SimListener final : public Listener {
 public:
  SimListener(SimTransport* transport, std::string name, const ListenOptions& options,
              Acceptor* acceptor)
      : transport_(transport),
        name_(std::move(name)),
        address_(StrCat(kScheme, name_)),
        options_(options),
        acceptor_(acceptor) {
    transport_->listeners_[name_] = this;
  }
  ~SimListener() override {
    transport_->listeners_.erase(name_);
    transport_->fabric_->RemoveListener(name_, transport_->node_);
  }
  const std::string& address() const override { return address_; }
  const ListenOptions& options() const { return options_; }
  Acceptor& acceptor() { return *acceptor_; }

 private:
  SimTransport* const transport_;
  const std::string name_;
  const std::string address_;
  const ListenOptions options_;
  Acceptor* const acceptor_;
};

SimTransport::SimTransport(SimFabric* fabric, SimFabric::NodeId node, const EngineContext& engine)
    : fabric_(fabric),
      node_(node),
      random_(fabric->random().Fork()),
      exports_(engine.clock, engine.timers, engine.counters, kDefaultExportedBytes),
      table_(kMaxConnections, &exports_),
      engine_(engine),
      links_(fabric, node, &table_),
      framing_(&links_, {.region_keys = &random_}) {
  fabric_->SetTransport(node_, this);
}

SimTransport::~SimTransport() {
  const absl::Status why = absl::CancelledError("the engine is being destroyed");
  while (!peers_.empty()) {
    EndAndTell(peers_.begin(), why, absl::UnavailableError("the peer's engine was destroyed"));
  }
  WEFT_CHECK(listeners_.empty());  // User: listeners go before their engine
  fabric_->SetTransport(node_, nullptr);
}

// --- Transport ----------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Listener>> SimTransport::Listen(const std::string& address,
                                                               const ListenOptions& options,
                                                               Acceptor* acceptor) {
  WEFT_ASSIGN_OR_RETURN(std::string name, ListenerName(address));
  WEFT_RETURN_IF_ERROR(CheckOptions(options.link, options.hello));
  WEFT_RETURN_IF_ERROR(CheckConnectionQuota(options));
  if (options.security.has_value()) {
    return absl::InvalidArgumentError("the simulated network has no TLS: leave `security` out");
  }
  if (!fabric_->alive(node_)) {
    return absl::FailedPreconditionError(StrCat("node ", fabric_->NameOf(node_),
                                                " was killed: a server that comes back is another "
                                                "node, which may listen at ",
                                                address, " again"));
  }
  if (!fabric_->AddListener(name, node_)) {
    return absl::AlreadyExistsError(StrCat("somebody listens at ", address, " already"));
  }
  return std::unique_ptr<Listener>(
      std::make_unique<SimListener>(this, std::move(name), options, acceptor));
}

absl::StatusOr<Connection*> SimTransport::Connect(const std::string& address,
                                                  const ConnectOptions& options,
                                                  ConnectionHandler* handler) {
  WEFT_ASSIGN_OR_RETURN(const std::string name, ListenerName(address));
  WEFT_RETURN_IF_ERROR(CheckOptions(options.link, options.hello));
  if (options.security.has_value()) {
    return absl::InvalidArgumentError("the simulated network has no TLS: leave `security` out");
  }
  WEFT_ASSIGN_OR_RETURN(const PeerIterator peer, AddPeer(options.link, handler));
  FramedConnection& connection = *peer->second.connection;
  const uint64_t id = peer->first;
  const auto fail_at = [this, id](uint64_t time_ns, absl::Status why) {
    fabric_->At(time_ns, [this, id, why = std::move(why)] {
      fabric_->Deliver(node_, [this, id, why] {
        const auto found = peers_.find(id);
        if (found == peers_.end() ||
            found->second.connection->state() != Connection::State::kConnecting) {
          return;
        }
        EndAndTell(found, why, absl::UnavailableError("the client gave up"));
      });
    });
  };
  SimFabric::NodeId server;
  if (!fabric_->FindListener(name, &server)) {
    fail_at(fabric_->now_ns() + fabric_->options().wire.delay_ns,
            absl::UnavailableError(StrCat("nobody listens at ", address, ": is the server up?")));
    return &connection;
  }
  peer->second.node = server;
  fail_at(fabric_->now_ns() + options.link.connect_timeout_ns,
          absl::UnavailableError(StrCat("no connection to ", address, " within ",
                                        options.link.connect_timeout_ns / kNsPerMs, " ms")));
  Hello hello{
      node_, id,           connection.index(), connection.token(), options.link.window_slots,
      name,  options.hello};
  Tell(server, "hello", options.hello.size(),
       [hello = std::move(hello)](SimTransport& transport) { transport.OnHello(hello); });
  return &connection;
}

int SimTransport::Poll(int budget, uint64_t) {
  const int received = links_.Poll(budget);
  if (table_.has_events()) table_.FlushAll();
  return received + table_.RunEvents(*engine_.clock);
}

void SimTransport::CheckInvariants() const {
  framing_.CheckInvariants();
  for (const auto& [id, peer] : peers_) peer.connection->CheckInvariants();
}

// --- bringing up --------------------------------------------------------------------------------

void SimTransport::Tell(SimFabric::NodeId node, const char* name, size_t bytes,
                        Function<void(SimTransport&)> what) {
  fabric_->Transmit(
      node_, node, kControlBytes + bytes, name, 0,
      [fabric = fabric_, node, what = std::move(what)]() mutable {
        fabric->Deliver(node, [fabric, node, what = std::move(what)]() mutable {
          what(*fabric->transport(node));
        });
      },
      SimFabric::Way::kControl);
}

absl::StatusOr<SimTransport::PeerIterator> SimTransport::AddPeer(const LinkOptions& options,
                                                                 ConnectionHandler* handler) {
  FramedConnection::Options framed;
  framed.token = static_cast<uint32_t>(random_.Next64());
  framed.max_outstanding_operations = options.max_outstanding_operations;
  framed.patience = {engine_.clock, engine_.timers, options.transfer_timeout_ns};
  Peer peer;
  WEFT_ASSIGN_OR_RETURN(peer.connection, FramedConnection::Create(&table_, this, handler, framed));
  peer.window_slots = options.window_slots;
  ids_.emplace(peer.connection.get(), next_peer_);
  return peers_.emplace(next_peer_++, std::move(peer)).first;
}

SimTransport::PeerIterator SimTransport::Find(const FramedConnection& connection) {
  const auto found = ids_.find(&connection);
  WEFT_CHECK(found != ids_.end());  // Ours: connections of this transport
  return peers_.find(found->second);
}

void SimTransport::OnHello(const Hello& hello) {
  // That of a node which has died meanwhile: whoever accepted it was told so already, and is never
  // told again. Over sockets the end comes behind the hello.
  if (!fabric_->alive(hello.node)) return;
  const absl::Status status = Admit(hello);
  if (status.ok()) return;
  Tell(hello.node, "refusal", status.message().size(),
       [id = hello.id, status](SimTransport& client) { client.OnGoodbye(id, status); });
}

absl::Status SimTransport::Admit(const Hello& hello) {
  const auto found = listeners_.find(hello.listener);
  if (found == listeners_.end()) {
    return absl::UnavailableError(StrCat("nobody listens at sim:", hello.listener, " any more"));
  }
  SimListener& listener = *found->second;
  ClientShares& connections = connections_[hello.listener];
  WEFT_RETURN_IF_ERROR(
      CheckRoomForClient(listener.options(), connections, ClientNumberOf(hello.node)));
  const LinkOptions& options = listener.options().link;
  WEFT_ASSIGN_OR_RETURN(const PeerIterator added, AddPeer(options, /*handler=*/nullptr));
  Peer& peer = added->second;
  peer.node = hello.node;
  peer.remote_id = hello.id;
  peer.listener = hello.listener;
  connections.Take(ClientNumberOf(hello.node), 1);
  peer.connection->facts().peer_hello = hello.text;
  peer.connection->facts().path.identity = fabric_->identity(hello.node);
  peer.connection->facts().path.peer = fabric_->NameOf(hello.node);
  peer.connection->facts().path.client = ClientNumberOf(hello.node);
  absl::StatusOr<ConnectionHandler*> handler = listener.acceptor().OnIncoming(*peer.connection);
  absl::Status status = handler.status();
  Welcome welcome{node_,
                  added->first,
                  peer.connection->index(),
                  peer.connection->token(),
                  options.window_slots,
                  random_.Next64(),
                  listener.options().hello};
  if (status.ok()) {
    peer.connection->set_handler(*handler);
    status = StartLink(peer, /*active=*/false, welcome.nonce,
                       {.peer_index = hello.index,
                        .peer_token = hello.token,
                        .send_window_slots = hello.window_slots,
                        .receive_window_slots = options.window_slots});
  }
  if (!status.ok()) {
    End(added, status, /*peer_dead=*/false);
    return status;
  }
  Tell(hello.node, "welcome", welcome.text.size(),
       [id = hello.id, welcome](SimTransport& client) { client.OnWelcome(id, welcome); });
  return absl::OkStatus();
}

void SimTransport::OnWelcome(uint64_t id, const Welcome& welcome) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) {
    Tell(welcome.node, "goodbye", 0, [id = welcome.id](SimTransport& server) {
      server.OnGoodbye(id, absl::UnavailableError("the client has given up"));
    });
    return;
  }
  Peer& peer = found->second;
  peer.remote_id = welcome.id;
  if (peer.connection->state() == Connection::State::kClosed) return;  // RunEvents() tells it
  peer.connection->facts().peer_hello = welcome.text;
  const absl::Status status = StartLink(peer, /*active=*/true, welcome.nonce,
                                        {.peer_index = welcome.index,
                                         .peer_token = welcome.token,
                                         .send_window_slots = welcome.window_slots,
                                         .receive_window_slots = peer.window_slots});
  if (!status.ok()) EndAndTell(found, status, absl::UnavailableError(status.message()));
}

absl::Status SimTransport::StartLink(Peer& peer, bool active, uint64_t nonce,
                                     LinkAgreement agreement) {
  agreement.batch_bytes = links_.slot_bytes();
  agreement.peer_answers = true;
  agreement.peer_leases = true;
  ConnectionFacts& facts = peer.connection->facts();
  facts.path = links_.path();
  facts.path.peer = fabric_->NameOf(peer.node);
  facts.path.identity = fabric_->identity(peer.node);
  facts.path.client = active ? 0 : ClientNumberOf(peer.node);
  facts.path.server_engines = 1;  // which every wish means
  facts.candidates = {{PathKind::kSim, PathCandidate::Outcome::kChosen, "the simulated network",
                       LinkKind::kSimulated}};
  LinkPeer link_peer;
  link_peer.address = fabric_->NameOf(peer.node);
  link_peer.nonce = nonce;
  const SimOptions& options = fabric_->options();
  agreement.only_sealed = options.only_sealed;
  if (options.sealed || options.only_sealed) {
    link_peer.secret.emplace();  // no secret to the simulation, and another for each link
    StoreLe64(link_peer.secret->data(), nonce);
  }
  return peer.connection->StartLink(&framing_, link_peer, active, agreement);
}

void SimTransport::OnLinkUp(FramedConnection& connection) {
  Peer& peer = Find(connection)->second;
  peer.link_up = true;
  Tell(peer.node, "ready", 0, [id = peer.remote_id](SimTransport& other) { other.OnReady(id); });
  OpenIfReady(peer);
}

void SimTransport::OnReady(uint64_t id) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  found->second.remote_ready = true;
  OpenIfReady(found->second);
}

void SimTransport::OpenIfReady(Peer& peer) {
  if (peer.link_up && peer.remote_ready) peer.connection->Open();
}

// --- grants -------------------------------------------------------------------------------------

void SimTransport::SendGrant(FramedConnection& connection, ByteSpan grant) {
  const Peer& peer = Find(connection)->second;
  Tell(peer.node, "grant", grant.size(),
       [id = peer.remote_id, bytes = std::vector<std::byte>(grant.begin(), grant.end())](
           SimTransport& other) { other.OnGrant(id, bytes); });
}

void SimTransport::OnGrant(uint64_t id, ByteSpan grant) {
  const auto found = peers_.find(id);
  if (found != peers_.end()) found->second.connection->OnGrant(grant);
}

// --- ending -------------------------------------------------------------------------------------

void SimTransport::End(PeerIterator peer, const absl::Status& why, bool peer_dead) {
  const std::unique_ptr<FramedConnection> connection = std::move(peer->second.connection);
  ids_.erase(connection.get());
  if (!peer->second.listener.empty()) {
    connections_[peer->second.listener].Give(ClientNumberOf(peer->second.node), 1);
  }
  peers_.erase(peer);
  connection->End(why, peer_dead);
}

// Ends this side with `why`, and lets the other side know `told`.
void SimTransport::EndAndTell(PeerIterator peer, const absl::Status& why,
                              const absl::Status& told) {
  if (peer->second.remote_id != 0) {
    Tell(peer->second.node, "goodbye", told.message().size(),
         [id = peer->second.remote_id, told](SimTransport& other) { other.OnGoodbye(id, told); });
  }
  End(peer, why, /*peer_dead=*/false);
}

void SimTransport::OnGoodbye(uint64_t id, const absl::Status& why) {
  const auto found = peers_.find(id);
  if (found != peers_.end()) End(found, why, /*peer_dead=*/false);
}

void SimTransport::OnBroken(FramedConnection& connection, const absl::Status& why) {
  EndAndTell(Find(connection), why,
             absl::UnavailableError(StrCat("the peer gave up: ", why.message())));
}

void SimTransport::OnCloseRequested(FramedConnection& connection, std::string_view why) {
  const std::string reason(why);
  EndAndTell(Find(connection), absl::CancelledError(StrCat("closed here: ", reason)),
             absl::UnavailableError(StrCat("the peer closed: ", reason)));
}

void SimTransport::OnPeerGone(SimFabric::NodeId node, bool dead) {
  for (bool found = true; found;) {
    found = false;
    for (auto peer = peers_.begin(); peer != peers_.end(); ++peer) {
      if (peer->second.node != node) continue;
      const absl::Status why = absl::UnavailableError(
          StrCat("sim:", fabric_->NameOf(node), dead ? " died" : " has been silent for too long"));
      if (dead) {
        End(peer, why, /*peer_dead=*/true);
      } else {
        EndAndTell(peer, why, absl::UnavailableError("the peer did not hear this side any more"));
      }
      found = true;
      break;  // callbacks may have changed the map
    }
  }
}

}  // namespace weft
