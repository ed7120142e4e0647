#include "transport/control/local_proof.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/check.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/sockets/address.h"

namespace weft {
namespace {

constexpr char kMagic[8] = {'W', 'E', 'F', 'T', 'S', 'H', 'M', 3};
constexpr size_t kRequestBytes = sizeof(kMagic) + 16;
constexpr size_t kMaxReasonBytes = 200;  // a sentence for a person
constexpr size_t kMaxAnswerBytes = sizeof(kMagic) + 1 + kMaxReasonBytes;
constexpr std::byte kYes{0};
constexpr std::byte kNo{1};
constexpr int kBacklog = 1024;  // as kListenBacklog, for the same reason

// A request brings the first three, an answer all.
constexpr size_t kEvent = 0;
constexpr size_t kPage = 1;
constexpr size_t kDomain = 2;
constexpr size_t kLink = 3;
constexpr size_t kRequestDescriptors = 3;
constexpr size_t kAnswerDescriptors = 4;
using Descriptors = std::array<Descriptor, kAnswerDescriptors>;

// One message with the descriptors that came with it.
struct Received {
  size_t bytes = 0;  // 0: the peer has left
  Descriptors descriptors;
  bool Has(size_t count) const {
    return std::all_of(descriptors.begin(), descriptors.begin() + static_cast<ptrdiff_t>(count),
                       [](const Descriptor& descriptor) { return descriptor.valid(); });
  }
};

// Sends one message with the descriptors, at most kAnswerDescriptors.
absl::Status SendWithDescriptors(int socket, ByteSpan bytes, std::span<const int> descriptors) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kAnswerDescriptors * sizeof(int))] = {};
  if (!descriptors.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  if (::sendmsg(socket, &header, MSG_NOSIGNAL) < 0) {
    return StatusFromErrno(errno, "send over the local socket");
  }
  return absl::OkStatus();
}

// Every descriptor that arrived is owned or closed, whatever the peer sent.
void TakeDescriptors(msghdr* header, Received* received) {
  size_t taken = 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(header); part != nullptr; part = CMSG_NXTHDR(header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      Descriptor descriptor(number);
      if (taken < kAnswerDescriptors) received->descriptors[taken++] = std::move(descriptor);
    }
  }
}

// UNAVAILABLE: nothing has arrived yet.
absl::StatusOr<Received> ReceiveWithDescriptors(int socket, MutableByteSpan bytes) {
  iovec part{bytes.data(), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kAnswerDescriptors * sizeof(int))];
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  const ssize_t count = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  if (count < 0) return StatusFromErrno(errno, "receive over the local socket");
  Received received;
  received.bytes = static_cast<size_t>(count);
  TakeDescriptors(&header, &received);
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return absl::DataLossError("a message over the local socket is too long");
  }
  return received;
}

std::string RandomName() {
  const uint64_t high = SecureRandom64();
  const uint64_t low = SecureRandom64();
  std::string name = "weft-";
  for (const uint64_t half : {high, low}) {
    for (int shift = 60; shift >= 0; shift -= 4) {
      name.push_back("0123456789abcdef"[(half >> shift) & 15]);
    }
  }
  return name;
}

}  // namespace

absl::StatusOr<int32_t> VouchedProcessId(int fd) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return StatusFromErrno(errno, "ask the kernel for the peer's process");
  }
  if (credentials.uid != ::geteuid()) {
    return absl::PermissionDeniedError(StrCat("the peer runs as uid ", credentials.uid,
                                              ", this side as uid ", ::geteuid(),
                                              ": shared memory belongs to one user"));
  }
  return credentials.pid;
}

absl::Status CheckProcessId(int32_t told, int32_t vouched) {
  if (told == vouched) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("the peer's process number is ", told, " to itself and ", vouched,
             " from here: the processes are in different PID namespaces"));
}

// --- server --------------------------------------------------------------------------------------

// A client that has connected and has not presented anything yet.
class LocalProofServer::Visitor final : public PollHandler {
 public:
  Visitor(LocalProofServer* server, Descriptor socket)
      : server_(server), socket_(std::move(socket)) {}
  ~Visitor() { server_->poller_->Remove(socket_.get()); }

  absl::Status Watch() { return server_->poller_->Add(socket_.get(), EPOLLIN, this); }
  int fd() const { return socket_.get(); }

 private:
  void OnReady(uint32_t) override { server_->Serve(this); }

  LocalProofServer* const server_;
  const Descriptor socket_;
};

absl::StatusOr<std::unique_ptr<LocalProofServer>> LocalProofServer::Open(Poller* poller,
                                                                         Doorbell* doorbell,
                                                                         OnNeighbour on_neighbour) {
  std::string name = RandomName();
  Descriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const KernelAddress address = AbstractAddress(name);
  if (!listener.valid() || ::bind(listener.get(), address.get(), address.length) != 0 ||
      ::listen(listener.get(), kBacklog) != 0) {
    return StatusFromErrno(errno, "open the local socket");
  }
  std::unique_ptr<LocalProofServer> server(new LocalProofServer(
      std::move(name), std::move(listener), poller, doorbell, std::move(on_neighbour)));
  WEFT_RETURN_IF_ERROR(poller->Add(server->listener_.get(), EPOLLIN, server.get()));
  return server;
}

LocalProofServer::LocalProofServer(std::string name, Descriptor listener, Poller* poller,
                                   Doorbell* doorbell, OnNeighbour on_neighbour)
    : name_(std::move(name)),
      listener_(std::move(listener)),
      poller_(poller),
      doorbell_(doorbell),
      on_neighbour_(std::move(on_neighbour)) {}

LocalProofServer::~LocalProofServer() { poller_->Remove(listener_.get()); }

void LocalProofServer::OnReady(uint32_t) {
  Descriptor client(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!client.valid()) return;
  if (visitors_.size() == kMaxVisitors) visitors_.pop_front();
  visitors_.push_back(std::make_unique<Visitor>(this, std::move(client)));
  if (!visitors_.back()->Watch().ok()) visitors_.pop_back();
}

void LocalProofServer::Serve(Visitor* visitor) {
  std::array<std::byte, kRequestBytes> request;
  absl::StatusOr<Received> received = ReceiveWithDescriptors(visitor->fd(), request);
  if (received.ok() && received->bytes == kRequestBytes &&
      std::memcmp(request.data(), kMagic, sizeof(kMagic)) == 0) {
    const Nonce128 nonce{LoadLe64(request.data() + 8), LoadLe64(request.data() + 16)};
    Answer(visitor->fd(),
           received->Has(kRequestDescriptors)
               ? Examine(visitor->fd(), nonce, std::move(received->descriptors))
               : absl::InvalidArgumentError("the request came without a doorbell or a domain"));
  }
  const auto found = std::find_if(visitors_.begin(), visitors_.end(),
                                  [visitor](const auto& entry) { return entry.get() == visitor; });
  // Ours: only this function, and a new visitor, take one away
  WEFT_CHECK(found != visitors_.end());
  visitors_.erase(found);
}

absl::StatusOr<HandOver> LocalProofServer::Examine(int fd, const Nonce128& nonce,
                                                   Descriptors descriptors) {
  Neighbour neighbour;
  WEFT_ASSIGN_OR_RETURN(neighbour.process_id, VouchedProcessId(fd));
  WEFT_ASSIGN_OR_RETURN(neighbour.doorbell, PeerDoorbell::Open(descriptors[kEvent].Release(),
                                                               descriptors[kPage].Release()));
  neighbour.domain = std::move(descriptors[kDomain]);
  return on_neighbour_(nonce, std::move(neighbour));
}

void LocalProofServer::Answer(int fd, const absl::StatusOr<HandOver>& verdict) {
  const std::string reason = Printable(ToStd(verdict.status().message()), kMaxReasonBytes - 3);
  std::string answer(kMagic, sizeof(kMagic));
  answer.push_back(static_cast<char>(verdict.ok() ? kYes : kNo));
  answer += reason;
  std::vector<int> descriptors;
  if (verdict.ok()) {
    descriptors = {doorbell_->event_fd(), doorbell_->page_fd(), verdict->domain_descriptor,
                   verdict->link_descriptor};
  }
  // A client that does not take its answer has itself to blame.
  SendWithDescriptors(fd, AsBytes(answer), descriptors).IgnoreError();
}

// --- client --------------------------------------------------------------------------------------

LocalProofClient::~LocalProofClient() {
  if (socket_.valid()) poller_->Remove(socket_.get());
}

absl::Status LocalProofClient::Start(const std::string& socket_name, const Nonce128& nonce,
                                     const HostFacts& server) {
  if (socket_name.empty()) return absl::FailedPreconditionError("the server has no local socket");
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return StatusFromErrno(errno, "open the local socket");
  const KernelAddress address = AbstractAddress(socket_name);
  if (::connect(socket.get(), address.get(), address.length) != 0) {
    if (errno == EAGAIN) {
      return absl::ResourceExhaustedError("the server's local socket is busy");
    }
    if (errno == ECONNREFUSED) {
      return absl::FailedPreconditionError(
          "the server's local socket cannot be reached: the processes are in different network "
          "namespaces");
    }
    return Annotate(StatusFromErrno(errno, "connect"), "the server's local socket");
  }
  // Before anything is handed over: whose socket is it?
  WEFT_ASSIGN_OR_RETURN(server_process_id_, VouchedProcessId(socket.get()));
  WEFT_RETURN_IF_ERROR(CheckProcessId(server.process_id, server_process_id_));
  std::array<std::byte, kRequestBytes> request;
  std::memcpy(request.data(), kMagic, sizeof(kMagic));
  StoreLe64(request.data() + 8, nonce.high);
  StoreLe64(request.data() + 16, nonce.low);
  const int descriptors[] = {doorbell_->event_fd(), doorbell_->page_fd(), domain_descriptor_};
  WEFT_RETURN_IF_ERROR(SendWithDescriptors(socket.get(), request, descriptors));
  WEFT_RETURN_IF_ERROR(poller_->Add(socket.get(), EPOLLIN, this));
  socket_ = std::move(socket);
  return absl::OkStatus();
}

void LocalProofClient::OnReady(uint32_t) {
  absl::StatusOr<Neighbour> neighbour = ReadAnswer();
  poller_->Remove(socket_.get());
  socket_.Reset();
  on_result_(std::move(neighbour));
}

absl::StatusOr<Neighbour> LocalProofClient::ReadAnswer() {
  std::array<std::byte, kMaxAnswerBytes> answer;
  WEFT_ASSIGN_OR_RETURN(Received received, ReceiveWithDescriptors(socket_.get(), answer));
  constexpr size_t kHeaderBytes = sizeof(kMagic) + 1;
  if (received.bytes < kHeaderBytes || std::memcmp(answer.data(), kMagic, sizeof(kMagic)) != 0) {
    return absl::UnavailableError("the server gave no answer at its local socket");
  }
  if (answer[sizeof(kMagic)] != kYes) {
    const ByteSpan text = ByteSpan(answer).subspan(kHeaderBytes, received.bytes - kHeaderBytes);
    return absl::FailedPreconditionError(
        StrCat("server: ", Printable(AsStringView(text), kMaxReasonBytes)));
  }
  if (!received.Has(kAnswerDescriptors)) {
    return absl::DataLossError("the server's answer came without a doorbell, a domain or a link");
  }
  Descriptors& descriptors = received.descriptors;
  Neighbour neighbour;
  neighbour.process_id = server_process_id_;
  WEFT_ASSIGN_OR_RETURN(neighbour.doorbell, PeerDoorbell::Open(descriptors[kEvent].Release(),
                                                               descriptors[kPage].Release()));
  neighbour.domain = std::move(descriptors[kDomain]);
  neighbour.link = std::move(descriptors[kLink]);
  return neighbour;
}

}  // namespace weft
