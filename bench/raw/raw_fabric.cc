#include "bench/raw/raw_fabric.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "bench/perf/measurement.h"
#include "bench/perf/pipe.h"
#include "core/clock.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

constexpr uint32_t kVersion = FI_VERSION(1, 17);
constexpr size_t kNameBytes = 256;        // longest address of any provider
constexpr int kConnectTimeoutMs = 5'000;  // far more than a connection on loopback takes
constexpr size_t kQueueEntries = 4096;    // receives, and writes in flight, with room to spare
constexpr uint64_t kWriteContext = ~uint64_t{0};  // receives have their slot's number

absl::Status FabricError(int64_t result, std::string_view what) {
  return absl::UnavailableError(
      StrCat(what, ": ", fi_strerror(static_cast<int>(-result)), " (", result, ")"));
}

absl::Status Check(int64_t result, std::string_view what) {
  return result < 0 ? FabricError(result, what) : absl::OkStatus();
}

void* Context(uint64_t value) { return reinterpret_cast<void*>(value); }

// The same as Weft asks for.
fi_info* Hints(bool is_shm, const std::string& provider) {
  fi_info* hints = fi_allocinfo();
  hints->fabric_attr->prov_name = strdup(provider.c_str());
  hints->caps = FI_MSG | FI_RMA;
  hints->ep_attr->type = is_shm ? FI_EP_RDM : FI_EP_MSG;
  hints->ep_attr->rx_ctx_cnt = is_shm ? 0 : FI_SHARED_CONTEXT;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->tx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_SAW;
  hints->rx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_SAW;
  return hints;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RawFabric>> RawFabric::Open(const RawFabricOptions& options) {
  std::unique_ptr<RawFabric> raw(new RawFabric);
  WEFT_RETURN_IF_ERROR(raw->Discover(options));
  WEFT_RETURN_IF_ERROR(raw->OpenDomain());
  WEFT_RETURN_IF_ERROR(raw->info_->ep_attr->type == FI_EP_RDM ? raw->OpenShm(options.peer_fd)
                                                              : raw->OpenTcp(options));
  WEFT_RETURN_IF_ERROR(raw->PostAllReceives());
  WEFT_RETURN_IF_ERROR(raw->RegisterRegion(options));
  return raw;
}

// Endpoints go before what they are bound to: members die in the reverse order of declaration, and
// the registration, declared last, goes first.
RawFabric::~RawFabric() {
  registration_.reset();
  endpoint_.reset();
  listener_.reset();
  shared_receive_.reset();
  addresses_.reset();
  completions_.reset();
  events_.reset();
  domain_.reset();
  fabric_.reset();
  if (info_ != nullptr) fi_freeinfo(info_);
}

absl::Status RawFabric::Discover(const RawFabricOptions& options) {
  const bool is_shm = options.provider == "shm";
  fi_info* hints = Hints(is_shm, options.provider);
  // A tcp listener binds to loopback; everybody else lets the provider choose.
  const bool binds = !is_shm && options.listens;
  const int result = fi_getinfo(kVersion, is_shm ? nullptr : "127.0.0.1", nullptr,
                                binds ? FI_SOURCE : 0, hints, &info_);
  fi_freeinfo(hints);
  if (result != 0) return FabricError(result, StrCat("no provider \"", options.provider, "\""));
  inject_bytes_ = info_->tx_attr->inject_size;
  if (inject_bytes_ >= kSmallBytes) return absl::OkStatus();
  return absl::UnavailableError(StrCat(options.provider, " injects only ", inject_bytes_, " B"));
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

  WEFT_RETURN_IF_ERROR(WriteAll(peer_fd, name.data(), name.size()));
  WEFT_RETURN_IF_ERROR(ReadAll(peer_fd, name.data(), name.size()));
  if (fi_av_insert(addresses, name.data(), 1, &peer_, 0, nullptr) == 1) return absl::OkStatus();
  return absl::UnavailableError(StrCat("shm does not find the peer ", name.data()));
}

absl::Status RawFabric::OpenTcp(const RawFabricOptions& options) {
  fi_eq_attr attributes = {};
  attributes.wait_obj = FI_WAIT_FD;
  fid_eq* events = nullptr;
  WEFT_RETURN_IF_ERROR(
      Check(fi_eq_open(fabric_.get(), &attributes, &events, nullptr), "fi_eq_open"));
  events_.reset(events);
  fid_ep* shared_receive = nullptr;
  WEFT_RETURN_IF_ERROR(Check(
      fi_srx_context(domain_.get(), info_->rx_attr, &shared_receive, nullptr), "fi_srx_context"));
  shared_receive_.reset(shared_receive);
  WEFT_RETURN_IF_ERROR(
      Check(fi_ep_bind(shared_receive, &completions_->fid, FI_RECV), "binding the queue"));
  receive_endpoint_ = shared_receive;
  return options.listens ? Listen(options.peer_fd) : Connect(options.peer_fd);
}

absl::Status RawFabric::MakeTcpEndpoint(fi_info* info) {
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
  const absl::Status made = MakeTcpEndpoint(request);
  fi_freeinfo(request);
  WEFT_RETURN_IF_ERROR(made);
  WEFT_RETURN_IF_ERROR(Check(fi_accept(endpoint_.get(), nullptr, 0), "fi_accept"));
  return AwaitEvent(FI_CONNECTED, nullptr);
}

absl::Status RawFabric::Connect(int peer_fd) {
  std::array<char, kNameBytes> name = {};
  WEFT_RETURN_IF_ERROR(ReadAll(peer_fd, name.data(), name.size()));
  WEFT_RETURN_IF_ERROR(MakeTcpEndpoint(info_));
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

absl::Status RawFabric::PostAllReceives() {
  receives_.resize(size_t{kMaxInFlight} * kSmallBytes);
  for (size_t slot = 0; slot < kMaxInFlight; ++slot) {
    WEFT_RETURN_IF_ERROR(Check(PostReceive(slot), "fi_recv"));
  }
  return absl::OkStatus();
}

absl::Status RawFabric::RegisterRegion(const RawFabricOptions& options) {
  region_.assign(options.region_bytes, std::byte{1});  // touches every page
  const uint64_t key = SecureRandom64();
  fid_mr* registration = nullptr;
  WEFT_RETURN_IF_ERROR(
      Check(fi_mr_reg(domain_.get(), region_.data(), region_.size(), FI_WRITE | FI_REMOTE_WRITE, 0,
                      key, 0, &registration, nullptr),
            "fi_mr_reg"));
  registration_.reset(registration);
  WEFT_RETURN_IF_ERROR(WriteAll(options.peer_fd, &key, sizeof(key)));
  return ReadAll(options.peer_fd, &peer_key_, sizeof(peer_key_));
}

int RawFabric::PostReceive(size_t slot) {
  return static_cast<int>(fi_recv(receive_endpoint_, receives_.data() + slot * kSmallBytes,
                                  kSmallBytes, nullptr, FI_ADDR_UNSPEC, Context(slot)));
}

bool RawFabric::Send(RawKind kind) {
  std::array<std::byte, kSmallBytes> message = {};
  message[0] = static_cast<std::byte>(kind);
  const ssize_t result = fi_inject(endpoint_.get(), message.data(), message.size(), peer_);
  if (result == 0) return true;
  if (result != -FI_EAGAIN) FailWith(result, "fi_inject");
  return false;
}

bool RawFabric::Write(size_t offset, size_t bytes) {
  iovec from = {region_.data() + offset, bytes};
  fi_rma_iov to = {};
  to.addr = offset;
  to.len = bytes;
  to.key = peer_key_;
  void* descriptor = fi_mr_desc(registration_.get());
  fi_msg_rma message = {};
  message.msg_iov = &from;
  message.desc = &descriptor;
  message.iov_count = 1;
  message.addr = peer_;
  message.rma_iov = &to;
  message.rma_iov_count = 1;
  message.context = Context(kWriteContext);
  const ssize_t result = fi_writemsg(endpoint_.get(), &message, FI_COMPLETION);
  if (result == 0) return true;
  if (result != -FI_EAGAIN) FailWith(result, "fi_writemsg");
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
    const auto context = reinterpret_cast<uint64_t>(entries[i].op_context);
    if (context == kWriteContext) {
      ++writes_done_;
    } else if ((entries[i].flags & FI_RECV) != 0) {
      arrived_[messages++] = static_cast<RawKind>(receives_[context * kSmallBytes]);
      if (const int result = PostReceive(context); result != 0) FailWith(result, "fi_recv");
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
