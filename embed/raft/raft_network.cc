#include "embed/raft/raft_network.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "core/strings.h"
#include "embed/raft/raft_io_table.h"
#include "embed/raft/raft_wire.h"
#include "weft/bulk.h"
#include "weft/client_context.h"
#include "weft/log.h"
#include "weft/memory.h"
#include "weft/service.h"

namespace weft::embed {
namespace {

constexpr size_t kMaxGroupBytes = 64;
// Messages to one member that wait for its connection, each for kPatienceUs at most: what libraft
// sends in a tenth of that at 40,000 commands a second. What is more fails, and libraft sends it
// again from where the member is.
constexpr uint32_t kQueuedMessages = 4096;

constinit RaftIoTable<RaftNetwork> networks;

// REQUIRES: it has one.
RaftNetwork& NetworkOf(raft_io* io) { return *networks.Find(io); }

void Explain(raft_io* io, const absl::Status& status) {
  const std::string text(status.message());
  const size_t bytes = std::min(text.size(), sizeof(io->errmsg) - 1);
  std::memcpy(io->errmsg, text.data(), bytes);
  io->errmsg[bytes] = '\0';
}

int CodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kCancelled:
      return RAFT_CANCELED;
    case absl::StatusCode::kInvalidArgument:
      return RAFT_INVALID;
    case absl::StatusCode::kResourceExhausted:
      return RAFT_TOOMANY;
    case absl::StatusCode::kPermissionDenied:
      return RAFT_UNAUTHORIZED;
    default:
      return RAFT_NOCONNECTION;
  }
}

}  // namespace

// --- what is sent --------------------------------------------------------------------------------

struct RaftNetwork::Peer {
  std::string address;  // where the channel dials
  std::unique_ptr<Channel> channel;
  std::string wanted;   // where the member is now, as far as is known
  bool is_used = true;  // since the last Tidy()
};

// Lives until Weft has no use for it any more: when libraft has been told, or later.
struct RaftNetwork::Sending {
  raft_io_send* request = nullptr;
  raft_io_send_cb callback = nullptr;
  raft_id to = 0;
  std::string told_address;  // of `to`, by libraft
  uint64_t bytes = 0;        // of payload

  std::optional<wire::Ring::Place> record;  // it is written there, and not sent
  // One of these, by the payload's size.
  wire::Message message;
  std::optional<ClientContext> context;  // an attachment's, and of what is large
  wire::LargeMessage large;
  google::protobuf::Empty reply;
  char* large_bytes = nullptr;       // libraft's snapshot, or `gathered`; null: it is not large
  std::unique_ptr<char[]> gathered;  // entries of a large one, one behind the other
  std::unique_ptr<Buffer> lent;
  std::optional<BulkCall> bulk;
};

// --- what comes ----------------------------------------------------------------------------------

// A large message whose bytes are under way.
struct RaftNetwork::Fetching {
  Fetching(RaftNetwork* network, UnaryCall<wire::LargeMessage, google::protobuf::Empty> received)
      : network(*network), call(std::move(received)) {}
  ~Fetching() { network.fetching_bytes_ -= bytes; }

  RaftNetwork& network;
  uint64_t bytes = 0;  // of fetching_bytes_

  UnaryCall<wire::LargeMessage, google::protobuf::Empty> call;
  ReceivedMessage message;
  std::unique_ptr<Buffer> place;  // goes first
};

bool RaftNetwork::HasEntries(const Sending& sending) {
  return sending.message.has_append_entries() || sending.large.message().has_append_entries();
}

class RaftNetwork::Member final : public wire::RaftMember::Service {
 public:
  explicit Member(RaftNetwork* network) : network_(*network) {}

 private:
  absl::Status Deliver(ServerContext& context, const wire::Message& encoded) override {
    if (network_.state_ != State::kStarted) return absl::OkStatus();  // too late, as a lost one
    ReceivedMessage message;
    absl::Status status = network_.CheckSender(context, encoded);
    if (status.ok()) status = network_.HearOfRings(context, encoded);
    if (status.ok()) {
      status = encoded.ring().has_place() ? TakeFromRing(encoded, &message)
                                          : Take(context, encoded, &message);
    }
    if (status.ok()) status = network_.CheckForLibraft(message.message());
    if (!status.ok()) return Refuse(context, std::move(status));
    network_.HandOver(message.Release());
    return absl::OkStatus();
  }

  absl::Status TakeFromRing(const wire::Message& encoded, ReceivedMessage* message) {
    if (network_.rings_ == nullptr || !encoded.has_append_entries() || !encoded.payload().empty()) {
      return absl::InvalidArgumentError(
          StrCat("member ", encoded.from(), " says that its message lies in a ring",
                 network_.rings_ == nullptr
                     ? ", and this member's RaftNetworkOptions::replication is not kRing"
                     : ", and it is one without entries, or has their bytes with it"));
    }
    const absl::StatusOr<uint64_t> told = PayloadBytes(encoded);
    if (!told.ok()) return told.status();
    const absl::StatusOr<char*> payload = network_.rings_->Take(encoded, *told);
    if (!payload.ok()) return payload.status();
    // What libraft decodes must not change behind the look at it: the peer can still write there.
    const auto& types = encoded.append_entries().entry_types();
    if (std::find(types.begin(), types.end(), uint32_t{RAFT_CHANGE}) == types.end()) {
      return message->Decode(encoded, *payload);
    }
    if (absl::Status status = message->Decode(encoded); !status.ok()) return status;
    if (*told > 0) std::memcpy(message->payload(), *payload, *told);
    return absl::OkStatus();
  }

  static absl::Status Take(const ServerContext& context, const wire::Message& encoded,
                           ReceivedMessage* message) {
    // What comes is as long as what is told: nothing is allocated for a word alone.
    const absl::Cord& attachment = context.attachment();
    const absl::StatusOr<uint64_t> told = PayloadBytes(encoded);
    if (!told.ok()) return told.status();
    const size_t bytes = attachment.empty() ? encoded.payload().size() : attachment.size();
    if (*told != bytes) {
      return absl::InvalidArgumentError(StrCat("a message of a Raft group tells of ", *told,
                                               " bytes of payload, and has ", bytes));
    }
    if (absl::Status status = message->Decode(encoded); !status.ok()) return status;
    char* to = message->payload();
    if (attachment.empty()) {
      if (bytes > 0) std::memcpy(to, encoded.payload().data(), bytes);
      return absl::OkStatus();
    }
    for (const absl::string_view chunk : attachment.Chunks()) {
      std::memcpy(to, chunk.data(), chunk.size());
      to += chunk.size();
    }
    return absl::OkStatus();
  }

  void StartDeliverLarge(UnaryCall<wire::LargeMessage, google::protobuf::Empty> call) override {
    if (network_.state_ != State::kStarted) {
      return call.Finish(absl::UnavailableError("the member is closing"));
    }
    auto fetching = std::make_shared<Fetching>(&network_, std::move(call));
    absl::Status status = Begin(*fetching);
    ServerContext& context = fetching->call.context();
    if (!status.ok()) return fetching->call.Finish(Refuse(context, std::move(status)));
    const Slice into = fetching->place->slice();
    context.bulk().Fetch(
        fetching->call.request().payload(), into,
        [this, fetching](absl::Status fetched) { End(*fetching, std::move(fetched)); });
  }

  absl::Status Begin(Fetching& fetching) {
    const wire::LargeMessage& large = fetching.call.request();
    absl::Status status = network_.CheckSender(fetching.call.context(), large.message());
    if (!status.ok()) return status;
    const absl::StatusOr<uint64_t> told = PayloadBytes(large.message());
    if (!told.ok()) return told.status();
    if (*told != large.payload().length() || *told == 0 || !large.message().payload().empty()) {
      return absl::InvalidArgumentError(
          StrCat("a large message of a Raft group tells of ", *told, " bytes of payload, lends ",
                 large.payload().length(), " and has ", large.message().payload().size()));
    }
    const uint64_t most = network_.options_.max_payload_bytes;
    if (*told > most || network_.fetching_bytes_ > most - *told) {
      return absl::ResourceExhaustedError(
          StrCat("a payload of ", *told, " bytes beside ", network_.fetching_bytes_,
                 " that are under way; RaftNetworkOptions::max_payload_bytes is ", most));
    }
    fetching.bytes = *told;
    network_.fetching_bytes_ += *told;
    status = fetching.message.Decode(large.message());
    if (!status.ok()) return status;
    fetching.place = Buffer::Of(
        network_.engine_,
        MutableByteSpan(reinterpret_cast<std::byte*>(fetching.message.payload()), *told));
    return absl::OkStatus();
  }

  void End(Fetching& fetching, absl::Status fetched) {
    fetching.place.reset();
    if (fetched.ok() && network_.state_ == State::kStarted) {
      fetched = network_.CheckForLibraft(fetching.message.message());
      if (!fetched.ok()) fetched = Refuse(fetching.call.context(), std::move(fetched));
    }
    if (fetched.ok() && network_.state_ == State::kStarted) {
      ++network_.stats_.large_received;
      network_.HandOver(fetching.message.Release());
    }
    fetching.call.Finish(std::move(fetched));
  }

  absl::Status Refuse(const ServerContext& context, absl::Status why) {
    ++network_.stats_.refused;
    WEFT_LOG_EVERY_N_SEC(kWarning, 1, "a message of ", context.peer_id(), " at ",
                         context.path().peer, " was refused: ", why.message());
    return why;
  }

  RaftNetwork& network_;
};

// --- life ----------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<RaftNetwork>> RaftNetwork::Attach(
    raft_io* io, Engine& engine, const RaftNetworkOptions& options) {
  if (io == nullptr || io->init == nullptr || io->close == nullptr) {
    return absl::InvalidArgumentError(
        "the raft_io has no disk half yet: raft_uv_init() comes first");
  }
  const auto is_printable = [](char c) { return c > ' ' && c <= '~'; };
  if (options.group.empty() || options.group.size() > kMaxGroupBytes ||
      !std::all_of(options.group.begin(), options.group.end(), is_printable)) {
    return absl::InvalidArgumentError(StrCat("RaftNetworkOptions::group has ", options.group.size(),
                                             " characters; it must be 1 to ", kMaxGroupBytes,
                                             " printable ones, no blanks"));
  }
  if (!options.server.peer_id.empty()) {
    return absl::InvalidArgumentError(
        "RaftNetworkOptions::server.peer_id is set here, from the group and raft_init()'s id");
  }
  if (options.replication != RaftReplication::kMessages && !IsRingSize(options.ring_bytes)) {
    return absl::InvalidArgumentError(
        StrCat("RaftNetworkOptions::ring_bytes is ", options.ring_bytes, "; it must be ",
               kMinRingBytes, " to ", kMaxRingBytes, ", a multiple of ", kRingAlignment));
  }
  if (options.replication == RaftReplication::kRemoteWrites && !options.keep_memory_mark) {
    return absl::InvalidArgumentError(
        "RaftReplication::kRemoteWrites needs RaftNetworkOptions::keep_memory_mark: a member that "
        "was killed has to know that others took its memory for a log");
  }
  if (networks.Find(io) != nullptr) {
    return absl::AlreadyExistsError("the raft_io has a Weft network half already");
  }
  std::unique_ptr<RaftNetwork> network(new RaftNetwork(io, engine, options));
  networks.Add(io, network.get());
  return network;
}

RaftNetwork::RaftNetwork(raft_io* io, Engine& engine, const RaftNetworkOptions& options)
    : io_(io),
      disk_(*io),
      engine_(engine),
      options_(options),
      member_(std::make_unique<Member>(this)),
      self_(std::make_shared<RaftNetwork*>(this)) {
  if (options.replication == RaftReplication::kRing) {
    rings_ = std::make_unique<RaftRings>(engine, options.ring_bytes);
  }
  remote_writes_ = std::make_unique<RaftRemoteWrites>(
      engine, io,
      RaftRemoteWrites::Options{options.replication == RaftReplication::kRemoteWrites,
                                options.ring_bytes, options.memory_was_lost,
                                options.keep_memory_mark},
      [this](raft_message* message) {
        if (state_ != State::kStarted) return DiscardReceived(message);
        // One that was kept until a leader's memory was back; of what was written, rings keep
        // count.
        const bool was_kept =
            message->type == RAFT_IO_REQUEST_VOTE || message->type == RAFT_IO_TIMEOUT_NOW;
        if (was_kept) ++stats_.received;
        receive_(io_, message);
      });
  io->init = Init;
  io->start = Start;
  io->send = Send;
  io->close = Close;
  if (io->time != nullptr) io->time = Time;
}

RaftNetwork::~RaftNetwork() {
  // libraft may go on while channels wait for their engine.
  state_ = State::kClosed;
  *self_ = nullptr;
  StartUnsent();  // calls them back
  rings_.reset();
  remote_writes_.reset();
  peers_.clear();
  server_.reset();
  networks.Remove(io_);
  io_->init = disk_.init;
  io_->start = disk_.start;
  io_->send = disk_.send;
  io_->close = disk_.close;
  io_->time = disk_.time;
}

std::string RaftNetwork::PeerName(std::string_view group, raft_id id) {
  return StrCat(group, "/", id);
}

std::string RaftNetwork::AddressOf(std::string_view raft_address) const {
  return options_.address_of ? options_.address_of(raft_address) : std::string(raft_address);
}

std::string RaftNetwork::address() const {
  return server_ != nullptr ? server_->address() : std::string();
}

RaftNetworkStats RaftNetwork::stats() const {
  RaftNetworkStats stats = stats_;
  stats.rings = rings_ != nullptr ? rings_->stats() : remote_writes_->stats();
  return stats;
}

absl::StatusOr<PathInfo> RaftNetwork::PathTo(raft_id id) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) {
    return absl::UnavailableError(StrCat("member ", id, " was never sent anything"));
  }
  return found->second.channel->path();
}

int RaftNetwork::Init(raft_io* io, raft_id id, const char* address) {
  RaftNetwork& self = NetworkOf(io);
  self.id_ = id;
  self.address_ = address;
  return self.disk_.init(io, id, address);
}

int RaftNetwork::Start(raft_io* io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb receive) {
  RaftNetwork& self = NetworkOf(io);
  self.tick_ = tick;
  self.receive_ = receive;
  if (const absl::Status status = self.Listen(); !status.ok()) {
    Explain(io, status);
    return CodeOf(status);
  }
  const int code = self.disk_.start(io, msecs, Tick, Receive);
  if (code == 0) self.state_ = State::kStarted;
  return code;
}

raft_time RaftNetwork::Time(raft_io* io) {
  const RaftNetwork& self = NetworkOf(io);
  return self.now_.has_value() ? *self.now_ : self.disk_.time(io);
}

void RaftNetwork::Tick(raft_io* io) {
  RaftNetwork& self = NetworkOf(io);
  // No time passes between what is decided before the tick and libraft's own look.
  self.now_ = self.disk_.time(io);
  self.now_ = self.remote_writes_->BeforeTick(*self.now_);
  self.tick_(io);
  self.now_.reset();
}

void RaftNetwork::Receive(raft_io* io, raft_message* message) { NetworkOf(io).HandOver(message); }

absl::Status RaftNetwork::Listen() {
  ServerOptions options = options_.server;
  options.peer_id = PeerName(options_.group, id_);
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Create(engine_, options);
  if (!server.ok()) return server.status();
  if (absl::Status added = (*server)->AddService(member_.get()); !added.ok()) return added;
  if (absl::Status listening = (*server)->Listen(AddressOf(address_)); !listening.ok()) {
    return listening;
  }
  server_ = *std::move(server);
  return absl::OkStatus();
}

void RaftNetwork::Close(raft_io* io, raft_io_close_cb callback) {
  RaftNetwork& self = NetworkOf(io);
  self.closed_ = callback;
  self.state_ = State::kClosing;
  self.remote_writes_->BeforeClose();
  // Those without a context end when their connection has them, or by their deadline.
  for (Sending& sending : self.sending_) {
    if (sending.context.has_value()) sending.context->Cancel().IgnoreError();
  }
  self.CloseWhenQuiet();
}

void RaftNetwork::CloseWhenQuiet() {
  if (state_ != State::kClosing || !sending_.empty() || !unsent_.empty()) return;
  state_ = State::kClosed;
  disk_.close(io_, OnDiskClosed);
}

// libraft's disk half says so again when something of its own ends late.
void RaftNetwork::OnDiskClosed(raft_io* io) {
  RaftNetwork* const self = networks.Find(io);
  if (self == nullptr || self->closed_ == nullptr) return;
  std::exchange(self->closed_, nullptr)(io);
}

// --- sending -------------------------------------------------------------------------------------

std::string_view RaftNetwork::ConfiguredAddress(raft_id id) const {
  // raft_init() has put it there.
  const auto* const raft = static_cast<const struct raft*>(io_->data);
  if (raft == nullptr) return {};
  for (unsigned i = 0; i < raft->configuration.n; ++i) {
    const raft_server& server = raft->configuration.servers[i];
    if (server.id == id) return server.address;
  }
  return {};
}

absl::StatusOr<Channel*> RaftNetwork::ChannelTo(raft_id id, std::string_view told_address,
                                                bool may_open) {
  const std::string_view configured = ConfiguredAddress(id);
  const std::string_view address = configured.empty() ? told_address : configured;
  if (const auto found = peers_.find(id); found != peers_.end()) {
    Peer& peer = found->second;
    peer.is_used = true;
    peer.wanted = std::string(address);
    if (peer.address == address) return peer.channel.get();
    // A channel that was used in a callback of the engine may not be destroyed there.
    return absl::UnavailableError(StrCat("member ", id, " has moved from ", peer.address, " to ",
                                         address, "; RaftNetwork::Tidy() has not run since"));
  }
  if (!may_open) return absl::UnavailableError(StrCat("member ", id, " has no channel yet"));
  if (configured.empty()) {
    const auto strangers = std::count_if(peers_.begin(), peers_.end(), [this](const auto& each) {
      return ConfiguredAddress(each.first).empty();
    });
    if (static_cast<size_t>(strangers) >= kMaxStrangers) {
      return absl::ResourceExhaustedError(
          StrCat("member ", id, " is not in the group's configuration, and ", strangers,
                 " others that are not are spoken to already"));
    }
  }
  ChannelOptions options = options_.channel;
  options.max_queued_calls = kQueuedMessages;
  absl::StatusOr<std::unique_ptr<Channel>> channel =
      server_->OpenPeer(PeerName(options_.group, id), AddressOf(address), options);
  if (!channel.ok()) return channel.status();
  Peer& peer = peers_[id];
  peer = {std::string(address), *std::move(channel), std::string(address)};
  return peer.channel.get();
}

void RaftNetwork::Tidy() {
  if (rings_ != nullptr) rings_->Tidy();
  remote_writes_->Tidy();
  std::list<Peer> leaving;  // callbacks of their calls may look for peers
  for (auto at = peers_.begin(); at != peers_.end();) {
    Peer& peer = at->second;
    const bool is_stranger = ConfiguredAddress(at->first).empty();
    if (peer.address == peer.wanted && (peer.is_used || !is_stranger)) {
      peer.is_used = false;
      ++at;
      continue;
    }
    const bool is_free = remote_writes_->Forget(at->first, *peer.channel);
    if (!is_free || (rings_ != nullptr && !rings_->Forget(at->first, *peer.channel))) {
      ++at;
      continue;
    }
    leaving.push_back(std::move(peer));
    at = peers_.erase(at);
  }
}

int RaftNetwork::Send(raft_io* io, raft_io_send* request, const raft_message* message,
                      raft_io_send_cb callback) {
  RaftNetwork& self = NetworkOf(io);
  if (self.state_ != State::kStarted) return RAFT_CANCELED;
  if (self.unsent_.size() >= kQueuedMessages) return RAFT_TOOMANY;
  const auto sending = self.unsent_.emplace(self.unsent_.end());
  sending->request = request;
  sending->callback = callback;
  absl::Status status = self.Encode(*message, &*sending);
  const bool is_first = self.unsent_.size() == 1;
  // Memory is lent in a turn of the engine. What a leader writes as the quorum waits for one, too:
  // where much fails at once, writes may call back inside (RemoteMemory), which calls do not; and
  // at once it gained nothing (docs/performance_log.md).
  const bool may_start =
      is_first && sending->large_bytes == nullptr && !sending->record.has_value();
  // The member begins with it while libraft makes the next one: what libraft sends in one go takes
  // it as long to make as a member to take, and would else be made first, and taken then. What
  // fails does so again in the engine's turn, and calls back: of an error that send() returns
  // libraft takes no note.
  if (status.ok() && may_start && self.Start(sending, /*in_send=*/true).ok()) {
    self.sending_.splice(self.sending_.end(), self.unsent_);
    return 0;
  }
  // The first one asks for a turn.
  if (status.ok() && is_first && !self.engine_.Post([self = self.self_] {
        if (*self != nullptr) (*self)->StartUnsent();
      })) {
    status = absl::ResourceExhaustedError("the engine's inbox is full");
  }
  if (!status.ok()) {
    self.OnNotSent(*sending);
    self.unsent_.erase(sending);
    Explain(io, status);
  }
  return CodeOf(status);
}

absl::Status RaftNetwork::Encode(const raft_message& message, Sending* sending) {
  sending->to = message.server_id;
  if (message.server_address != nullptr) sending->told_address = message.server_address;
  sending->bytes = PayloadBytes(message);
  const bool is_large = sending->bytes > kLargeBytes;
  wire::Message& encoded = is_large ? *sending->large.mutable_message() : sending->message;
  if (absl::Status status = EncodeRaftMessage(message, id_, address_, &encoded); !status.ok()) {
    return status;
  }
  const bool has_entries = message.type == RAFT_IO_APPEND_ENTRIES;
  remote_writes_->Tell(message, &encoded);
  if (has_entries && !is_large && encoded.ByteSizeLong() <= kMaxPlacedBytes) {
    sending->record.emplace();
    if (remote_writes_->Reserve(message, sending->bytes, encoded, &*sending->record)) {
      return absl::OkStatus();
    }
    sending->record.reset();
  }
  if (rings_ != nullptr && !is_large) {
    rings_->Tell(message.server_id, has_entries, &encoded);
    if (has_entries && sending->bytes > 0 && encoded.ByteSizeLong() <= kMaxPlacedBytes &&
        rings_->Reserve(message.server_id, message, sending->bytes, &encoded)) {
      return absl::OkStatus();
    }
  }
  if (is_large && message.type == RAFT_IO_INSTALL_SNAPSHOT) {
    sending->large_bytes = static_cast<char*>(message.install_snapshot.data.base);
  } else if (is_large) {
    sending->gathered = std::make_unique<char[]>(sending->bytes);
    sending->large_bytes = sending->gathered.get();
    CopyPayload(message, sending->large_bytes);
  } else if (sending->bytes > kInlineBytes) {
    return sending->context.emplace().SetAttachment(GatherPayload(message));
  } else if (sending->bytes > 0) {
    std::string* const payload = encoded.mutable_payload();
    payload->resize(sending->bytes);
    CopyPayload(message, payload->data());
  }
  return absl::OkStatus();
}

void RaftNetwork::StartUnsent() {
  // All of them count as under way before the first one ends: the last one that does may close the
  // disk half. What callbacks send asks for a turn of its own: it finds an empty list.
  std::vector<std::list<Sending>::iterator> starting;
  for (auto at = unsent_.begin(); at != unsent_.end(); ++at) starting.push_back(at);
  sending_.splice(sending_.end(), unsent_);
  for (const auto sending : starting) {
    absl::Status status = Start(sending, /*in_send=*/false);
    if (status.ok()) continue;
    Explain(io_, status);
    OnSent(sending, status);
  }
}

absl::Status RaftNetwork::Start(std::list<Sending>::iterator sending, bool in_send) {
  if (state_ != State::kStarted) return absl::CancelledError("the member is closing");
  const absl::StatusOr<Channel*> found =
      ChannelTo(sending->to, sending->told_address, /*may_open=*/!in_send);
  if (!found.ok()) return found.status();
  Channel& channel = **found;
  if (HasEntries(*sending) && remote_writes_->MustFail(sending->to)) {
    if (!in_send) remote_writes_->NoteFailed(sending->to);
    return absl::UnavailableError(StrCat("member ", sending->to,
                                         " was started again, and lacks "
                                         "what it had; libraft sends it again"));
  }
  const auto done = [this, sending](absl::Status status) { OnSent(sending, status); };
  if (sending->record.has_value()) {
    return remote_writes_->Write(sending->to, channel, *sending->record, done);
  }
  const wire::RaftMember::Stub stub(channel);
  if (sending->large_bytes == nullptr) {
    if (sending->message.ring().has_place()) {
      absl::Status written = rings_->Write(sending->to, channel, sending->message);
      if (!written.ok()) return written;
    }
    ClientContext* const context = sending->context.has_value() ? &*sending->context : nullptr;
    stub.Deliver(sending->message, {.timeout_us = kPatienceUs, .context = context}, done);
    if (in_send) channel.Flush();
    return absl::OkStatus();
  }
  sending->lent = Buffer::Of(
      engine_, MutableByteSpan(reinterpret_cast<std::byte*>(sending->large_bytes), sending->bytes));
  sending->bulk.emplace(channel);
  sending->bulk->Send(sending->lent->slice(), sending->large.mutable_payload());
  stub.DeliverLarge(sending->large, &sending->reply,
                    {.timeout_us = kLargePatienceUs,
                     .priority = Priority::kBackground,
                     .bulk = &*sending->bulk,
                     .context = &sending->context.emplace()},
                    done);
  return absl::OkStatus();
}

void RaftNetwork::OnNotSent(const Sending& sending) {
  if (rings_ != nullptr) rings_->OnFailed(sending.to, sending.message);
  if (remote_writes_ != nullptr && sending.record.has_value()) {
    remote_writes_->OnFailed(sending.to, *sending.record);
  }
}

void RaftNetwork::OnSent(std::list<Sending>::iterator sending, const absl::Status& status) {
  if (sending->bulk.has_value() && sending->bulk->state() == BulkCall::State::kPinned) {
    // The server may still read what libraft would free.
    return sending->bulk->WhenReclaimed([this, sending, status] { OnSent(sending, status); });
  }
  if (status.ok()) {
    ++stats_.sent;
    stats_.sent_bytes += sending->bytes;
    if (sending->bulk.has_value()) ++stats_.large_sent;
  } else {
    ++stats_.failed;
    OnNotSent(*sending);
  }
  raft_io_send* const request = sending->request;
  const raft_io_send_cb callback = sending->callback;
  const bool closing = state_ != State::kStarted;
  sending_.erase(sending);
  if (callback != nullptr)
    callback(request, status.ok() ? 0 : closing ? RAFT_CANCELED : CodeOf(status));
  CloseWhenQuiet();
}

// --- receiving -----------------------------------------------------------------------------------

absl::Status RaftNetwork::CheckSender(const ServerContext& context, const wire::Message& message) {
  if (context.peer_id() == PeerName(options_.group, message.from())) return absl::OkStatus();
  return absl::PermissionDeniedError(StrCat("a message of member ", message.from(), " of group ",
                                            options_.group, " came from \"", context.peer_id(),
                                            "\", which is another"));
}

absl::Status RaftNetwork::HearOfRings(const ServerContext& context, const wire::Message& message) {
  if (!message.has_ring() && !message.has_remote_writes()) return absl::OkStatus();
  const auto peer = peers_.find(message.from());
  Channel* const channel = peer != peers_.end() ? peer->second.channel.get() : nullptr;
  const bool is_member = !ConfiguredAddress(message.from()).empty();
  const uint64_t incarnation = context.peer_incarnation();
  absl::Status heard = remote_writes_->Hear(message, incarnation, channel, is_member);
  if (rings_ == nullptr || !heard.ok()) return heard;
  return rings_->Hear(message, incarnation, channel, is_member);
}

// What libraft only asserts, and is built without its assertions: a leader takes what another
// leader of its term says for a follower's, and its list of members for a leader's address.
absl::Status RaftNetwork::CheckForLibraft(const raft_message& message) const {
  const auto* const raft = static_cast<const struct raft*>(io_->data);
  const raft_term term = TermOfLeader(message);
  if (term != 0 && raft->state == RAFT_LEADER && raft->current_term == term) {
    return absl::InvalidArgumentError(StrCat("member ", message.server_id,
                                             " says that it leads in term ", term,
                                             ", in which this one was elected"));
  }
  return CheckChanges(message);
}

void RaftNetwork::HandOver(raft_message* message) {
  if (!remote_writes_->BeforeMessage(*message)) return DiscardReceived(message);
  ++stats_.received;
  receive_(io_, message);
  remote_writes_->AfterMessage();
}

}  // namespace weft::embed
