#include "bench/raw/raw_fabric.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "bench/perf/cell/cell.h"
#include "bench/perf/ends/pipe.h"
#include "core/clock.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

constexpr uint32_t kVersion = FI_VERSION(1, 17);
constexpr size_t kNameBytes = 256;  // longest address of any provider
// Far more than a connection takes, and than the peer's start on an emulated processor.
constexpr int kConnectTimeoutMs = 30'000;
constexpr size_t kQueueEntries = 4096;  // receives, and transfers in flight, with room to spare
constexpr size_t kKinds = static_cast<size_t>(RawKind::kOver) + 1;
// Messages beyond it are sent from several places in turn, as what an application sends would be.
// Smaller ones stay in a cache on both sides, and gain nothing.
constexpr size_t kSamePlaceBytes = 4096;
constexpr uint64_t kMessageAccess = FI_SEND | FI_RECV;
constexpr uint64_t kRegionAccess = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

// What a peer has to know of our region.
struct RegionName {
  uint64_t key = 0;
  uint64_t base = 0;
};

// The arguments of one read or write; the message refers to the rest.
struct RawTransfer {
  RawTransfer(std::byte* local, size_t bytes, fid_mr* registration)
      : piece{local, bytes}, descriptor(fi_mr_desc(registration)) {}
  RawTransfer(const RawTransfer&) = delete;
  RawTransfer& operator=(const RawTransfer&) = delete;

  void Aim(fi_addr_t peer, uint64_t key, uint64_t at, void* context) {
    remote.addr = at;
    remote.len = piece.iov_len;
    remote.key = key;
    message.msg_iov = &piece;
    message.desc = &descriptor;
    message.iov_count = 1;
    message.addr = peer;
    message.rma_iov = &remote;
    message.rma_iov_count = 1;
    message.context = context;
  }

  iovec piece;
  void* descriptor;
  fi_rma_iov remote = {};
  fi_msg_rma message = {};
};

absl::Status FabricError(int64_t result, std::string_view what) {
  return absl::UnavailableError(
      StrCat(what, ": ", fi_strerror(static_cast<int>(-result)), " (", result, ")"));
}

absl::Status Check(int64_t result, std::string_view what) {
  return result < 0 ? FabricError(result, what) : absl::OkStatus();
}

// The same as Weft asks for.
fi_info* Hints(const RawFabricOptions& options) {
  const bool is_shm = options.provider == "shm";
  fi_info* hints = fi_allocinfo();
  hints->fabric_attr->prov_name = strdup(options.provider.c_str());
  hints->caps = FI_MSG | FI_RMA;
  hints->ep_attr->type = is_shm ? FI_EP_RDM : FI_EP_MSG;
  hints->ep_attr->rx_ctx_cnt = is_shm ? 0 : FI_SHARED_CONTEXT;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->tx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_SAW;
  hints->rx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_SAW;
  if (options.provider != "verbs") return hints;
  hints->domain_attr->name = strdup(options.device.c_str());
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  // The provider does not guess the family of an IPv6 address.
  hints->addr_format =
      options.host.find(':') == std::string::npos ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
  return hints;
}

}  // namespace

std::string RawFabric::LibraryVersion() {
  return StrCat(FI_MAJOR(fi_version()), ".", FI_MINOR(fi_version()));
}

absl::StatusOr<std::unique_ptr<RawFabric>> RawFabric::Open(const RawFabricOptions& options) {
  std::unique_ptr<RawFabric> raw(new RawFabric);
  raw->message_bytes_ = options.message_bytes;
  raw->receives_ = std::min<size_t>(kMaxInFlight, kRegionBytes / options.message_bytes + 8);
  WEFT_RETURN_IF_ERROR(raw->Discover(options));
  WEFT_RETURN_IF_ERROR(raw->OpenDomain());
  WEFT_RETURN_IF_ERROR(raw->info_->ep_attr->type == FI_EP_RDM ? raw->OpenShm(options.peer_fd)
                                                              : raw->OpenMsg(options));
  if (options.has_region) WEFT_RETURN_IF_ERROR(raw->PrepareRegion(options));
  return raw;
}

// Endpoints go before what they are bound to, and before the memory that they use.
RawFabric::~RawFabric() {
  endpoint_.reset();
  listener_.reset();
  shared_receive_.reset();
  registration_.reset();
  messages_registration_.reset();
  addresses_.reset();
  completions_.reset();
  events_.reset();
  domain_.reset();
  fabric_.reset();
  if (info_ != nullptr) fi_freeinfo(info_);
}

absl::Status RawFabric::Discover(const RawFabricOptions& options) {
  const bool is_shm = options.provider == "shm";
  // Copies through the provider's own segments are 2 to 3 times faster at 1 MiB than those by the
  // kernel, in virtual machines at least. Read by the first fi_getinfo().
  setenv("FI_SHM_DISABLE_CMA", "1", /*overwrite=*/0);
  fi_info* hints = Hints(options);
  const int result = fi_getinfo(kVersion, is_shm ? nullptr : options.host.c_str(), nullptr,
                                is_shm ? 0 : FI_SOURCE | FI_NUMERICHOST, hints, &info_);
  fi_freeinfo(hints);
  if (result != 0) {
    return FabricError(result, StrCat("no provider \"", options.provider, "\" at ", options.device,
                                      " ", options.host));
  }
  inject_bytes_ = info_->tx_attr->inject_size;
  return absl::OkStatus();
}

absl::Status RawFabric::OpenDomain() {
  fid_fabric* fabric = nullptr;
  WEFT_RETURN_IF_ERROR(Check(fi_fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric"));
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  WEFT_RETURN_IF_ERROR(Check(fi_domain(fabric, info_, &domain, nullptr), "fi_domain"));
  domain_.reset(domain);
  fi_cq_attr attributes = {};
  attributes.format = FI_CQ_FORMAT_MSG;
  attributes.wait_obj = FI_WAIT_NONE;
  attributes.size = kQueueEntries;
  fid_cq* completions = nullptr;
  WEFT_RETURN_IF_ERROR(Check(fi_cq_open(domain, &attributes, &completions, nullptr), "fi_cq_open"));
  completions_.reset(completions);
  return absl::OkStatus();
}

absl::Status RawFabric::OpenShm(int peer_fd) {
  fi_av_attr attributes = {};
  attributes.type = FI_AV_TABLE;
  fid_av* addresses = nullptr;
  WEFT_RETURN_IF_ERROR(
      Check(fi_av_open(domain_.get(), &attributes, &addresses, nullptr), "fi_av_open"));
  addresses_.reset(addresses);
  // Used as it is, without the provider's prefix: the file's name in /dev/shm.
  std::array<char, kNameBytes> name = {};
  snprintf(name.data(), name.size(), "weft-raw-%016llx",
           static_cast<unsigned long long>(SecureRandom64()));
  std::free(info_->src_addr);
  info_->src_addr = strdup(name.data());
  info_->src_addrlen = std::strlen(name.data()) + 1;
  fid_ep* endpoint = nullptr;
  WEFT_RETURN_IF_ERROR(Check(fi_endpoint(domain_.get(), info_, &endpoint, nullptr), "fi_endpoint"));
  endpoint_.reset(endpoint);
  WEFT_RETURN_IF_ERROR(Check(fi_ep_bind(endpoint, &addresses->fid, 0), "binding addresses"));
  WEFT_RETURN_IF_ERROR(
      Check(fi_ep_bind(endpoint, &completions_->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION),
            "binding the queue"));
  WEFT_RETURN_IF_ERROR(
      Check(fi_ep_bind(endpoint, &completions_->fid, FI_RECV), "binding the queue"));
  WEFT_RETURN_IF_ERROR(Check(fi_enable(endpoint), "fi_enable"));
  receive_endpoint_ = endpoint;
  WEFT_RETURN_IF_ERROR(PrepareMessages());

  WEFT_RETURN_IF_ERROR(WriteAll(peer_fd, name.data(), name.size()));
  WEFT_RETURN_IF_ERROR(ReadAll(peer_fd, name.data(), name.size()));
  if (fi_av_insert(addresses, name.data(), 1, &peer_, 0, nullptr) == 1) return absl::OkStatus();
  return absl::UnavailableError(StrCat("shm does not find the peer ", name.data()));
}

absl::Status RawFabric::OpenMsg(const RawFabricOptions& options) {
  fi_eq_attr attributes = {};
  attributes.wait_obj = FI_WAIT_FD;
  fid_eq* events = nullptr;
  WEFT_RETURN_IF_ERROR(
      Check(fi_eq_open(fabric_.get(), &attributes, &events, nullptr), "fi_eq_open"));
  events_.reset(events);
  fi_rx_attr receive_attributes = *info_->rx_attr;
  receive_attributes.size = receives_;
  fid_ep* shared_receive = nullptr;
  WEFT_RETURN_IF_ERROR(
      Check(fi_srx_context(domain_.get(), &receive_attributes, &shared_receive, nullptr),
            "fi_srx_context"));
  shared_receive_.reset(shared_receive);
  // To verbs the endpoint tells where completions go.
  const int bound = fi_ep_bind(shared_receive, &completions_->fid, FI_RECV);
  if (bound != -FI_ENOSYS) WEFT_RETURN_IF_ERROR(Check(bound, "binding the queue"));
  receive_endpoint_ = shared_receive;
  WEFT_RETURN_IF_ERROR(PrepareMessages());
  return options.listens ? Listen(options.peer_fd) : Connect(options.peer_fd);
}

absl::Status RawFabric::MakeMsgEndpoint(fi_info* info) {
  fid_ep* endpoint = nullptr;
  WEFT_RETURN_IF_ERROR(Check(fi_endpoint(domain_.get(), info, &endpoint, nullptr), "fi_endpoint"));
  endpoint_.reset(endpoint);
  int result = fi_ep_bind(endpoint, &events_->fid, 0);
  if (result == 0) result = fi_ep_bind(endpoint, &shared_receive_->fid, 0);
  if (result == 0) {
    result = fi_ep_bind(endpoint, &completions_->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
  }
  if (result == 0) result = fi_ep_bind(endpoint, &completions_->fid, FI_RECV);
  if (result == 0) result = fi_enable(endpoint);
  return Check(result, "enabling the endpoint");
}

absl::Status RawFabric::Listen(int peer_fd) {
  fid_pep* listener = nullptr;
  WEFT_RETURN_IF_ERROR(
      Check(fi_passive_ep(fabric_.get(), info_, &listener, nullptr), "fi_passive_ep"));
  listener_.reset(listener);
  int result = fi_pep_bind(listener, &events_->fid, 0);
  if (result == 0) result = fi_listen(listener);
  std::array<char, kNameBytes> name = {};
  size_t bytes = name.size();
  if (result == 0) result = fi_getname(&listener->fid, name.data(), &bytes);
  WEFT_RETURN_IF_ERROR(Check(result, "listening"));
  WEFT_RETURN_IF_ERROR(WriteAll(peer_fd, name.data(), name.size()));

  fi_info* request = nullptr;
  WEFT_RETURN_IF_ERROR(AwaitEvent(FI_CONNREQ, &request));
  const absl::Status made = MakeMsgEndpoint(request);
  fi_freeinfo(request);
  WEFT_RETURN_IF_ERROR(made);
  WEFT_RETURN_IF_ERROR(Check(fi_accept(endpoint_.get(), nullptr, 0), "fi_accept"));
  return AwaitEvent(FI_CONNECTED, nullptr);
}

absl::Status RawFabric::Connect(int peer_fd) {
  std::array<char, kNameBytes> name = {};
  WEFT_RETURN_IF_ERROR(ReadAll(peer_fd, name.data(), name.size()));
  // An endpoint of verbs looks for the way when it is made: it has to know both of its ends.
  info_->dest_addrlen = info_->src_addrlen;  // of one family, so of one length
  info_->dest_addr = std::malloc(info_->dest_addrlen);
  std::memcpy(info_->dest_addr, name.data(), info_->dest_addrlen);
  WEFT_RETURN_IF_ERROR(MakeMsgEndpoint(info_));
  WEFT_RETURN_IF_ERROR(Check(fi_connect(endpoint_.get(), name.data(), nullptr, 0), "fi_connect"));
  return AwaitEvent(FI_CONNECTED, nullptr);
}

absl::Status RawFabric::AwaitEvent(uint32_t wanted, fi_info** request) {
  fi_eq_cm_entry entry = {};
  uint32_t event = 0;
  const ssize_t bytes =
      fi_eq_sread(events_.get(), &event, &entry, sizeof(entry), kConnectTimeoutMs, 0);
  if (bytes < 0) return FabricError(bytes, "connecting");
  if (event != wanted) return absl::UnavailableError(StrCat("unexpected event ", event));
  if (request != nullptr) *request = entry.info;
  return absl::OkStatus();
}

bool RawFabric::RegistersLocalMemory() const {
  return (info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
}

absl::Status RawFabric::Register(std::vector<std::byte>& memory, uint64_t access,
                                 RawPtr<fid_mr>* opened) {
  fid_mr* registration = nullptr;
  WEFT_RETURN_IF_ERROR(Check(fi_mr_reg(domain_.get(), memory.data(), memory.size(), access, 0,
                                       SecureRandom64(), 0, &registration, nullptr),
                             "fi_mr_reg"));
  opened->reset(registration);
  return absl::OkStatus();
}

absl::Status RawFabric::PrepareMessages() {
  const size_t receive_bytes = receives_ * message_bytes_;
  const size_t control_bytes = kKinds * kControlBytes;
  const size_t data_bytes =
      message_bytes_ <= kSamePlaceBytes ? message_bytes_ : size_t{kRegionBytes};
  messages_.assign(receive_bytes + control_bytes + data_bytes, std::byte{0});
  control_ = messages_.data() + receive_bytes;
  data_ = next_data_ = control_ + control_bytes;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    control_[kind * kControlBytes] = static_cast<std::byte>(kind);
  }
  if (RegistersLocalMemory()) {
    WEFT_RETURN_IF_ERROR(Register(messages_, kMessageAccess, &messages_registration_));
    messages_descriptor_ = fi_mr_desc(messages_registration_.get());
  }
  for (size_t slot = 0; slot < receives_; ++slot) {
    WEFT_RETURN_IF_ERROR(Check(PostReceive(messages_.data() + slot * message_bytes_), "fi_recv"));
  }
  return absl::OkStatus();
}

absl::Status RawFabric::PrepareRegion(const RawFabricOptions& options) {
  region_.assign(kRegionBytes, std::byte{1});  // touches every page
  WEFT_RETURN_IF_ERROR(Register(region_, kRegionAccess, &registration_));
  const bool counts_from_zero = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) == 0;
  const RegionName ours = {
      fi_mr_key(registration_.get()),
      counts_from_zero ? 0 : static_cast<uint64_t>(reinterpret_cast<uintptr_t>(region_.data()))};
  WEFT_RETURN_IF_ERROR(WriteAll(options.peer_fd, &ours, sizeof(ours)));
  RegionName theirs;
  WEFT_RETURN_IF_ERROR(ReadAll(options.peer_fd, &theirs, sizeof(theirs)));
  peer_key_ = theirs.key;
  peer_base_ = theirs.base;
  return absl::OkStatus();
}

int RawFabric::PostReceive(std::byte* slot) {
  return static_cast<int>(fi_recv(receive_endpoint_, slot, message_bytes_, messages_descriptor_,
                                  FI_ADDR_UNSPEC, /*context=*/slot));
}

bool RawFabric::Send(RawKind kind) {
  return Post(control_ + static_cast<size_t>(kind) * kControlBytes, kControlBytes);
}

bool RawFabric::SendData(RawKind kind, size_t bytes) {
  *next_data_ = static_cast<std::byte>(kind);
  if (!Post(next_data_, bytes)) return false;
  next_data_ += bytes;
  if (bytes <= kSamePlaceBytes || next_data_ + bytes > messages_.data() + messages_.size()) {
    next_data_ = data_;
  }
  return true;
}

// What is sent does not change while it is on the way: it can be sent again before the first send
// is complete.
bool RawFabric::Post(const std::byte* message, size_t bytes) {
  const ssize_t result = bytes <= inject_bytes_ ? fi_inject(endpoint_.get(), message, bytes, peer_)
                                                : fi_send(endpoint_.get(), message, bytes,
                                                          messages_descriptor_, peer_, nullptr);
  return Posted(result, "sending");
}

bool RawFabric::Write(size_t offset, size_t bytes) {
  RawTransfer transfer(region_.data() + offset, bytes, registration_.get());
  transfer.Aim(peer_, peer_key_, peer_base_ + offset, &transfers_done_);
  return Posted(fi_writemsg(endpoint_.get(), &transfer.message, FI_COMPLETION), "fi_writemsg");
}

bool RawFabric::Read(size_t offset, size_t bytes) {
  RawTransfer transfer(region_.data() + offset, bytes, registration_.get());
  transfer.Aim(peer_, peer_key_, peer_base_ + offset, &transfers_done_);
  return Posted(fi_readmsg(endpoint_.get(), &transfer.message, FI_COMPLETION), "fi_readmsg");
}

bool RawFabric::Posted(int64_t result, const char* what) {
  if (result == 0) return true;
  if (result != -FI_EAGAIN) FailWith(result, what);
  return false;
}

int RawFabric::ReadCompletions() {
  fi_cq_msg_entry entries[kBatch];
  const ssize_t count = fi_cq_read(completions_.get(), entries, kBatch);
  if (count == -FI_EAGAIN) return 0;
  if (count < 0) {
    ReadError();
    return 0;
  }
  int messages = 0;
  for (ssize_t i = 0; i < count; ++i) {
    if (entries[i].op_context == &transfers_done_) {
      ++transfers_done_;
    } else if ((entries[i].flags & FI_RECV) != 0) {
      auto* slot = static_cast<std::byte*>(entries[i].op_context);
      arrived_[messages++] = static_cast<RawKind>(*slot);
      if (const int result = PostReceive(slot); result != 0) FailWith(result, "fi_recv");
    }
  }
  return messages;
}

void RawFabric::ReadError() {
  fi_cq_err_entry error = {};
  if (fi_cq_readerr(completions_.get(), &error, 0) > 0) FailWith(-error.err, "a completion");
}

void RawFabric::FailWith(int64_t result, const char* what) {
  if (status_.ok()) status_ = FabricError(result, what);
}

}  // namespace weft::bench
