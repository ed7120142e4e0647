#include "transport/ofi/fabric_domain.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/bytes.h"
#include "core/inline.h"
#include "core/log.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/ofi/fabric_link.h"

namespace weft {
namespace {

// The connect request's private data: at most 48 bytes, to fit every provider. 4 bytes of magic
// ("WFT1"), 4 zero, 8 of nonce; little-endian.
constexpr uint32_t kHelloMagic = 0x31544657;
constexpr size_t kHelloBytes = 16;

struct Hello {
  explicit Hello(uint64_t nonce) {
    StoreLe32(bytes, kHelloMagic);
    StoreLe32(bytes + 4, 0);
    StoreLe64(bytes + 8, nonce);
  }
  std::byte bytes[kHelloBytes];
};

// An event with the largest private data that a provider delivers.
struct alignas(fi_eq_cm_entry) EventBuffer {
  std::byte bytes[sizeof(fi_eq_cm_entry) + 256];
  const fi_eq_cm_entry& entry() const { return *reinterpret_cast<const fi_eq_cm_entry*>(bytes); }
};

int WaitDescriptor(fid_t object) {
  int fd = -1;
  return fi_control(object, FI_GETWAIT, &fd) == 0 ? fd : -1;
}

}  // namespace

FabricDomain::FabricDomain(const OfiOptions& options, std::shared_ptr<FabricObjects> objects,
                           const FabricTraits& traits)
    : options_(options), parts_(options, std::move(objects), traits) {
  path_.kind = traits.kind;
  path_.link = traits.link;
  path_.provider = absl::StrCat(parts_.objects->info->fabric_attr->prov_name, " (libfabric ",
                                FabricVersionText(), ")");
  path_.device = parts_.objects->info->domain_attr->name;
}

FabricDomain::~FabricDomain() {
  WEFT_DCHECK(parts_.stats.links_open == 0);  // Ours: links go before their domain
  if (wait_fd_ >= 0) close(wait_fd_);
}

// --- opening ---------------------------------------------------------------------------------

absl::Status FabricDomain::Start() {
  WEFT_RETURN_IF_ERROR(OpenEvents());
  if (!options_.bind_address.empty()) {
    WEFT_RETURN_IF_ERROR(OpenListener());
  }
  return OpenDescriptor();
}

absl::Status FabricDomain::OpenEvents() {
  fi_eq_attr attributes = {};
  attributes.wait_obj = FI_WAIT_FD;
  fid_eq* events = nullptr;
  if (int result = fi_eq_open(parts_.objects->fabric.get(), &attributes, &events, nullptr);
      result != 0) {
    return FabricStatus(result, absl::StrCat("fi_eq_open (", name(), ")"));
  }
  events_.reset(events);
  return absl::OkStatus();
}

absl::Status FabricDomain::OpenListener() {
  fid_pep* listener = nullptr;
  if (int result = fi_passive_ep(parts_.objects->fabric.get(), parts_.objects->info.get(),
                                 &listener, nullptr);
      result != 0) {
    return FabricStatus(result, absl::StrCat("listening on \"", options_.bind_address, "\""));
  }
  listener_.reset(listener);
  int result = fi_pep_bind(listener, &events_->fid, 0);
  if (result == 0) result = fi_listen(listener);
  SocketAddress bound;
  size_t bytes = sizeof(bound.storage);
  if (result == 0) result = fi_getname(&listener->fid, &bound.storage, &bytes);
  if (result != 0) return FabricStatus(result, absl::StrCat("listening (", name(), ")"));
  path_.local = FormatAddress(bound);
  return absl::OkStatus();
}

absl::Status FabricDomain::OpenDescriptor() {
  wait_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (wait_fd_ < 0) return StatusFromErrno(errno, "epoll_create1");
  for (fid_t object : {&parts_.objects->queue->fid, &events_->fid}) {
    const int fd = WaitDescriptor(object);
    if (fd < 0) {
      return absl::UnavailableError(
          absl::StrCat("the provider of ", name(), " has no descriptor to wait on"));
    }
    WEFT_RETURN_IF_ERROR(WatchDescriptor(fd));
  }
  return absl::OkStatus();
}

absl::Status FabricDomain::WatchDescriptor(int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  if (epoll_ctl(wait_fd_, EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return StatusFromErrno(errno, "epoll_ctl");
}

// --- slots and memory --------------------------------------------------------------------------

absl::Status FabricDomain::AddSlots(uint32_t send, uint32_t receive) {
  WEFT_RETURN_IF_ERROR(parts_.receives.CheckRoom(receive));
  WEFT_RETURN_IF_ERROR(parts_.slots.Reserve(send, parts_.receives.MissingFor(receive)));
  parts_.slots.AddSends(send);
  if (parts_.receives.Add(receive)) return absl::OkStatus();
  RemoveSlots(send, receive);
  return absl::ResourceExhaustedError("the provider does not take more receives now");
}

void FabricDomain::RemoveSlots(uint32_t send, uint32_t receive) {
  parts_.slots.RemoveSends(send);
  parts_.receives.Remove(receive);
}

absl::StatusOr<std::unique_ptr<Region>> FabricDomain::Register(MutableByteSpan memory,
                                                               Access access) {
  if (memory.empty()) return absl::InvalidArgumentError("a region of 0 bytes cannot be registered");
  return FabricRegion::Open(&parts_.registrar, memory, access);
}

// --- completions -------------------------------------------------------------------------------

namespace {

// The provider's own words, where it has more of them: "transport retry counter exceeded".
std::string DetailOf(fid_cq* queue, const fi_cq_err_entry& entry) {
  if (entry.prov_errno == 0 || entry.prov_errno == entry.err) return "";
  char text[128] = {};
  const char* words = fi_cq_strerror(queue, entry.prov_errno, nullptr, text, sizeof(text) - 1);
  if (words == nullptr || *words == '\0') return "";
  return absl::StrCat(" (", words, ")");
}

}  // namespace

// Of a send or an operation.
void FabricDomain::OnCompleted(WorkId id, const absl::Status& status) {
  if (id.Is(WorkKind::kSend)) {
    Slot* const slot = parts_.slots.FindSend(id);
    if (slot != nullptr && slot->link != nullptr) slot->link->OnSendDone(slot, status);
  } else if (id.Is(WorkKind::kOperation)) {
    OperationRecord* const record = parts_.operations.Find(id);
    if (record != nullptr) record->link->OnPartDone(record, status);
  }
}

void FabricDomain::OnFailed(fid_cq* queue, const fi_cq_err_entry& entry) {
  const WorkId id(entry.op_context);
  if (id.Is(WorkKind::kReceive)) return parts_.receives.OnFailed(id, entry.err);
  OnCompleted(id, absl::UnavailableError(absl::StrCat(
                      "the provider reports: ", LoadedFabricLibrary().strerror(entry.err),
                      DetailOf(queue, entry))));
}

WEFT_INLINE int FabricDomain::ReadCompletions(int budget) {
  return parts_.queue.Read(
      budget,
      [this](const fi_cq_msg_entry& entry) {
        const WorkId id(entry.op_context);
        if (id.Is(WorkKind::kReceive)) [[likely]] {
          parts_.receives.OnDone(id, entry.len);
        } else {
          OnCompleted(id, absl::OkStatus());
        }
      },
      [this] { LookNow(); },
      [this](fid_cq* queue, const fi_cq_err_entry& entry) { OnFailed(queue, entry); });
}

// --- turns -------------------------------------------------------------------------------------

int FabricDomain::Poll(int budget) {
  OutstandingOperations& operations = parts_.operations;
  int done = operations.has_deferred() ? operations.Deliver(budget) : 0;
  if (parts_.links.has_retries()) [[unlikely]]
    parts_.links.Retry();
  const int completions = ReadCompletions(budget);
  done += completions;
  if (parts_.receives.lacks(/*idle=*/completions == 0)) [[unlikely]]
    parts_.receives.TopUp();
  if (--turns_to_connections_ == 0) [[unlikely]] {
    turns_to_connections_ = kConnectionTurns;
    done += PollConnections(completions > 0);
  }
  if (parts_.links.has_events()) [[unlikely]]
    done += parts_.links.DeliverEvents();
  if (parts_.slots.ran_out() || operations.ran_out()) [[unlikely]]
    TellOfRoom();
  return done;
}

void FabricDomain::TellOfRoom() {
  const bool slots = parts_.slots.HasRoomAgain();
  const bool operations = parts_.operations.HasRoomAgain();
  if (slots || operations) parts_.links.TellSlotsFree();
}

bool FabricDomain::busy() const {
  return parts_.operations.size() > 0 || parts_.links.has_retries() || parts_.queue.in_flight() > 0;
}

// What came in since the last turn is not slept over: both queues are looked at once more.
bool FabricDomain::Arm() {
  if (HasPending() || look_now_ || parts_.queue.HasEntries()) return false;
  if (ReadEvents() > 0) {
    LookNow();
    return false;
  }
  LookNow();  // the first turn after the sleep looks at the events
  fid_t waits[2] = {&events_->fid, &parts_.objects->queue->fid};
  return fi_trywait(parts_.objects->fabric.get(), waits, 2) == FI_SUCCESS;
}

// --- links -------------------------------------------------------------------------------------

absl::Status FabricDomain::MakeEndpoint(FabricLink* link, fi_info* info) {
  fid_ep* opened = nullptr;
  const int result = fi_endpoint(parts_.objects->domain.get(), info, &opened, nullptr);
  if (result != 0)
    return FabricStatus(result, absl::StrCat("fi_endpoint (", name(), ")", LockedMemoryHint()));
  EndpointPtr endpoint(opened);
  WEFT_RETURN_IF_ERROR(PrepareEndpoint(opened));
  link->Take(std::move(endpoint));
  by_endpoint_[&opened->fid] = link;
  return absl::OkStatus();
}

absl::Status FabricDomain::PrepareEndpoint(fid_ep* endpoint) {
  int result = fi_ep_bind(endpoint, &events_->fid, 0);
  if (result == 0)
    result = fi_ep_bind(endpoint, &parts_.objects->queue->fid, FI_TRANSMIT | FI_RECV);
  if (result == 0) result = fi_ep_bind(endpoint, &parts_.objects->shared_receive->fid, 0);
  if (result == 0) result = fi_enable(endpoint);
  if (result == 0) return absl::OkStatus();
  return FabricStatus(result,
                      absl::StrCat("enabling an endpoint (", name(), ")", LockedMemoryHint()));
}

// What the endpoint connects from and to. (The provider's own search for it would look names up.)
absl::StatusOr<InfoPtr> FabricDomain::InfoFor(SocketAddress& remote) const {
  InfoPtr info(LoadedFabricLibrary().dupinfo(parts_.objects->info.get()));
  if (info == nullptr) return absl::ResourceExhaustedError("no memory for an endpoint");
  if (!connects_from_listener()) {  // the kernel chooses: the listener's own port is taken
    std::free(std::exchange(info->src_addr, nullptr));
    info->src_addrlen = 0;
  }
  std::free(info->dest_addr);
  info->addr_format = remote.fabric_format();
  info->dest_addrlen = remote.length();
  info->dest_addr = std::malloc(info->dest_addrlen);
  if (info->dest_addr == nullptr) return absl::ResourceExhaustedError("no memory for an address");
  std::memcpy(info->dest_addr, remote.get(), info->dest_addrlen);
  return info;
}

absl::Status FabricDomain::BeginConnect(FabricLink* link, SocketAddress remote) {
  WEFT_ASSIGN_OR_RETURN(const InfoPtr info, InfoFor(remote));
  WEFT_RETURN_IF_ERROR(MakeEndpoint(link, info.get()));
  const Hello hello(link->nonce());
  if (int result = fi_connect(link->endpoint(), remote.get(), hello.bytes, sizeof(hello.bytes));
      result != 0) {
    return FabricStatus(result, absl::StrCat("connecting to ", FormatAddress(remote)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Link>> FabricDomain::Connect(const LinkPeer& peer,
                                                            LinkHandler* handler) {
  WEFT_RETURN_IF_ERROR(lost_);
  WEFT_ASSIGN_OR_RETURN(const SocketAddress remote, ParseAddress(peer.address));
  auto link = std::make_unique<FabricLink>(this, handler, peer.nonce);
  WEFT_RETURN_IF_ERROR(BeginConnect(link.get(), remote));
  return std::unique_ptr<Link>(std::move(link));
}

absl::StatusOr<std::unique_ptr<Link>> FabricDomain::Accept(const LinkPeer& peer,
                                                           LinkHandler* handler) {
  WEFT_RETURN_IF_ERROR(lost_);
  if (listener_ == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("this side of ", name(), " has no address to listen at"));
  }
  if (expected_.contains(peer.nonce)) {
    return absl::InvalidArgumentError("another link waits for the same nonce");
  }
  auto link = std::make_unique<FabricLink>(this, handler, peer.nonce);
  expected_[peer.nonce] = link.get();
  return std::unique_ptr<Link>(std::move(link));
}

void FabricDomain::Forget(FabricLink* link) {
  if (link->endpoint() != nullptr) by_endpoint_.erase(&link->endpoint()->fid);
  const auto found = expected_.find(link->nonce());
  if (found != expected_.end() && found->second == link) expected_.erase(found);
}

FabricLink* FabricDomain::LinkOf(fid_t endpoint) const {
  const auto found = by_endpoint_.find(endpoint);
  return found == by_endpoint_.end() ? nullptr : found->second;
}

// --- events ------------------------------------------------------------------------------------

int FabricDomain::PollConnections(bool found) {
  const bool urgent = connecting_ > 0 || (look_now_ && !found);
  int events = 0;
  if (urgent || ++looks_skipped_ >= kEventInterval) {
    looks_skipped_ = 0;
    look_now_ = false;
    events = ReadEvents();
  }
  if (connecting_ > 0 || look_now_) LookAtConnections();
  return events;
}

int FabricDomain::ReadEvents() {
  int count = 0;
  for (; count < kMaxEventsAtOnce; ++count) {
    EventBuffer buffer;
    uint32_t event = 0;
    const ssize_t bytes = fi_eq_read(events_.get(), &event, &buffer, sizeof(buffer), 0);
    if (bytes == -FI_EAVAIL) {
      OnEventError();
      continue;
    }
    if (bytes < 0 && bytes != -FI_EAGAIN) {
      OnEventFailure(bytes);
      continue;
    }
    if (bytes < static_cast<ssize_t>(sizeof(fi_eq_cm_entry))) return count;
    if (event == FI_CONNREQ) {
      OnConnectionRequest(buffer.entry(), static_cast<size_t>(bytes) - sizeof(fi_eq_cm_entry));
    } else if (FabricLink* link = LinkOf(buffer.entry().fid); link != nullptr) {
      if (event == FI_CONNECTED) link->OnConnected();
      if (event == FI_SHUTDOWN) {
        link->OnDisconnected(
            absl::UnavailableError(absl::StrCat("the peer closed the ", name(), " connection")));
      }
    }
  }
  LookNow();  // there may be more
  return count;
}

// Decides before an endpoint exists: rejecting after fi_endpoint() is a use after free in 1.17.
void FabricDomain::OnConnectionRequest(const fi_eq_cm_entry& entry, size_t bytes) {
  const InfoPtr info(entry.info);
  const auto* hello = reinterpret_cast<const std::byte*>(entry.data);
  FabricLink* link = nullptr;
  if (bytes >= kHelloBytes && LoadLe32(hello) == kHelloMagic) {
    // All are compared, each in one instruction: a look-up would tell by its time how near a guess
    // was. There are as many as links that are being made.
    const uint64_t nonce = LoadLe64(hello + 8);
    for (const auto& [expected, waiting] : expected_) {
      if (expected == nonce) link = waiting;
    }
    if (link != nullptr) expected_.erase(nonce);
  }
  if (link == nullptr) {
    WEFT_LOG_EVERY_N_SEC(kInfo, 1, name(), ": a connection without a handshake was rejected");
    return Reject(*info);
  }
  if (absl::Status made = MakeEndpoint(link, info.get()); !made.ok()) {
    link->OnDisconnected(made);
    return;
  }
  if (int result = fi_accept(link->endpoint(), nullptr, 0); result != 0) {
    link->OnDisconnected(FabricStatus(result, absl::StrCat("fi_accept (", name(), ")")));
  }
}

void FabricDomain::Reject(const fi_info& request) {
  fi_reject(listener_.get(), request.handle, nullptr, 0);
}

void FabricDomain::OnEventError() {
  char details[256];  // the refused connection's private data, which we do not use
  fi_eq_err_entry error = {};
  error.err_data = details;
  error.err_data_size = sizeof(details);
  if (fi_eq_readerr(events_.get(), &error, 0) <= 0) return;
  const absl::Status why = FabricStatus(error.err, absl::StrCat("connection (", name(), ")"));
  if (listener_ != nullptr && error.fid == &listener_->fid) return OnListenerLost(why);
  FabricLink* link = LinkOf(error.fid);
  if (link != nullptr) link->OnDisconnected(why);
}

// A refused connection over iWARP comes as a plain error that does not say whose it is. With one
// link that connects it is that one's; with several their time limits decide.
void FabricDomain::OnEventFailure(int64_t result) {
  if (connecting_ != 1) return;
  for (const auto& [endpoint, link] : by_endpoint_) {
    if (!link->connecting()) continue;
    return link->OnDisconnected(FabricStatus(result, absl::StrCat("connection (", name(), ")")));
  }
}

// The device was removed, or its address changed: no more connections can come or go through it. A
// removal waits in the kernel until everybody has let go.
void FabricDomain::OnListenerLost(const absl::Status& why) {
  if (!lost_.ok()) return;
  lost_ = absl::UnavailableError(absl::StrCat(path().device, ": ", why.message()));
  WEFT_LOG(kError, name(), ": the listener is lost: ", ToStd(lost_.message()));
  listener_.reset();
  for (const auto& [nonce, link] : expected_) link->OnDisconnected(lost_);
}

}  // namespace weft
