#include "transport/control/local_proof.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/check.h"
#include "core/log.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/descriptor_message.h"
#include "transport/sockets/address.h"
#include "transport/sockets/socket.h"

namespace weft {
namespace {

constexpr char kMagic[8] = {'W', 'E', 'F', 'T', 'S', 'H', 'M', 4};
constexpr size_t kRequestBytes = sizeof(kMagic) + 16;
constexpr size_t kMaxReasonBytes = 200;  // a sentence for a person
constexpr size_t kMaxAnswerBytes = sizeof(kMagic) + 1 + kMaxReasonBytes;
constexpr std::byte kYes{0};
constexpr std::byte kNo{1};
constexpr int kBacklog = 1024;  // as kListenBacklog, for the same reason

// A request brings the first two, an answer all.
constexpr size_t kPage = 0;
constexpr size_t kDomain = 1;
constexpr size_t kLink = 2;
constexpr size_t kRequestDescriptors = 2;
constexpr size_t kAnswerDescriptors = 3;

// Whether a message came with so many descriptors, all of them memory.
bool Has(const DescriptorMessage& message, size_t count) {
  return message.descriptors.size() == count &&
         std::all_of(message.descriptors.begin(), message.descriptors.end(),
                     [](const Descriptor& descriptor) { return descriptor.valid(); });
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

// When a process was started, in ticks since the boot: with its number, the name of one process
// for all times. 0: it cannot be read. (proc(5): the 22nd field of stat; the second, a name, may
// have blanks and parentheses of its own.)
uint64_t StartOf(int32_t process_id) {
  const Descriptor file(
      ::open(StrCat("/proc/", process_id, "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return 0;
  char text[1024];
  const ssize_t bytes = ::read(file.get(), text, sizeof(text));
  if (bytes <= 0) return 0;
  std::string_view rest(text, static_cast<size_t>(bytes));
  rest.remove_prefix(std::min(rest.rfind(')') + 1, rest.size()));
  for (int field = 2; field < 22; ++field) {
    const size_t blank = rest.find(' ');
    if (blank == std::string_view::npos) return 0;
    rest.remove_prefix(blank + 1);
  }
  uint64_t start = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), start);
  return start;
}

}  // namespace

absl::StatusOr<PeerProcess> VouchedProcess(int fd) {
  const std::optional<ucred> peer = PeerCredentials(fd);
  if (!peer.has_value()) return StatusFromErrno(errno, "ask the kernel for the peer's process");
  if (peer->uid != ::geteuid()) {
    return absl::PermissionDeniedError(StrCat("the peer runs as uid ", peer->uid,
                                              ", this side as uid ", ::geteuid(),
                                              ": shared memory belongs to one user"));
  }
  return PeerProcess{peer->pid, StartOf(peer->pid), peer->uid, peer->gid};
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
  ~Visitor() { HangUp(TakeSocket()); }

  absl::Status Watch() { return server_->poller_->Add(socket_.get(), EPOLLIN, this); }
  int fd() const { return socket_.get(); }
  // It is not watched any more.
  Descriptor TakeSocket() {
    if (socket_.valid()) server_->poller_->Remove(socket_.get());
    return std::move(socket_);
  }

 private:
  void OnReady(uint32_t) override { server_->Serve(this); }

  LocalProofServer* const server_;
  Descriptor socket_;
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

// Whoever has connected and was not taken yet may have sent descriptors already.
LocalProofServer::~LocalProofServer() {
  poller_->Remove(listener_.get());
  ::shutdown(listener_.get(), SHUT_RDWR);  // nobody else comes
  for (;;) {
    Descriptor client(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!client.valid()) return;
    HangUp(std::move(client));
  }
}

// Strangers go at once: nothing that another user sends is looked at.
void LocalProofServer::OnReady(uint32_t) {
  if (ForeignDescriptorsPileUp()) {
    WEFT_LOG(kError,
             "clients of this host hand over descriptors that cannot be closed: no more "
             "shared memory at the local socket ",
             name_);
    return poller_->Remove(listener_.get());
  }
  Descriptor client(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!client.valid()) return;
  if (const absl::StatusOr<PeerProcess> peer = VouchedProcess(client.get()); !peer.ok()) {
    Answer(client.get(), peer.status());
    return HangUp(std::move(client));
  }
  if (visitors_.size() == kMaxVisitors) visitors_.pop_front();
  visitors_.push_back(std::make_unique<Visitor>(this, std::move(client)));
  if (!visitors_.back()->Watch().ok()) visitors_.pop_back();
}

void LocalProofServer::Serve(Visitor* visitor) {
  std::array<std::byte, kRequestBytes> request;
  absl::StatusOr<DescriptorMessage> message = absl::ResourceExhaustedError("not looked at");
  if (!ForeignDescriptorsPileUp()) message = ReceiveDescriptors(visitor->fd(), request);
  if (message.ok() && message->bytes == kRequestBytes &&
      std::memcmp(request.data(), kMagic, sizeof(kMagic)) == 0) {
    const Nonce128 nonce{LoadLe64(request.data() + 8), LoadLe64(request.data() + 16)};
    Descriptor socket = visitor->TakeSocket();
    const int fd = socket.get();
    Neighbour neighbour;
    const absl::StatusOr<HandOver> verdict =
        Has(*message, kRequestDescriptors)
            ? Examine(nonce, std::move(message->descriptors), &socket, &neighbour)
            : absl::InvalidArgumentError("the request came without a doorbell or a domain");
    // Whoever has the socket now: it is open until the end of this block.
    Answer(fd, verdict);
    HangUp(std::move(socket));
  }
  const auto found = std::find_if(visitors_.begin(), visitors_.end(),
                                  [visitor](const auto& entry) { return entry.get() == visitor; });
  // Ours: only this function, and a new visitor, take one away
  WEFT_CHECK(found != visitors_.end());
  visitors_.erase(found);
}

// Takes the socket, unless what came is no doorbell.
absl::StatusOr<HandOver> LocalProofServer::Examine(const Nonce128& nonce,
                                                   std::vector<Descriptor> descriptors,
                                                   Descriptor* socket, Neighbour* neighbour) {
  WEFT_ASSIGN_OR_RETURN(neighbour->process, VouchedProcess(socket->get()));
  WEFT_ASSIGN_OR_RETURN(neighbour->doorbell,
                        PeerDoorbell::Open(poller_, std::move(*socket), descriptors[kPage]));
  neighbour->domain = std::move(descriptors[kDomain]);
  return on_neighbour_(nonce, neighbour);
}

void LocalProofServer::Answer(int fd, const absl::StatusOr<HandOver>& verdict) {
  const std::string reason = Printable(ToStd(verdict.status().message()), kMaxReasonBytes - 3);
  std::string answer(kMagic, sizeof(kMagic));
  answer.push_back(static_cast<char>(verdict.ok() ? kYes : kNo));
  answer += reason;
  std::vector<int> descriptors;
  if (verdict.ok()) {
    descriptors = {doorbell_->page_fd(), verdict->domain_descriptor, verdict->link_descriptor};
  }
  // A client that does not take its answer has itself to blame.
  SendDescriptors(fd, AsBytes(answer), descriptors).IgnoreError();
}

// --- client --------------------------------------------------------------------------------------

LocalProofClient::~LocalProofClient() {
  if (!socket_.valid()) return;
  poller_->Remove(socket_.get());
  HangUp(std::move(socket_));
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
  WEFT_ASSIGN_OR_RETURN(server_process_, VouchedProcess(socket.get()));
  WEFT_RETURN_IF_ERROR(CheckProcessId(server.process_id, server_process_.id));
  std::array<std::byte, kRequestBytes> request;
  std::memcpy(request.data(), kMagic, sizeof(kMagic));
  StoreLe64(request.data() + 8, nonce.high);
  StoreLe64(request.data() + 16, nonce.low);
  const int descriptors[] = {doorbell_->page_fd(), domain_descriptor_};
  WEFT_RETURN_IF_ERROR(SendDescriptors(socket.get(), request, descriptors));
  WEFT_RETURN_IF_ERROR(poller_->Add(socket.get(), EPOLLIN, this));
  socket_ = std::move(socket);
  return absl::OkStatus();
}

void LocalProofClient::OnReady(uint32_t) {
  poller_->Remove(socket_.get());
  absl::StatusOr<Neighbour> neighbour = ReadAnswer();
  HangUp(std::move(socket_));
  on_result_(std::move(neighbour));
}

// The socket becomes the neighbour's, if there is one.
absl::StatusOr<Neighbour> LocalProofClient::ReadAnswer() {
  std::array<std::byte, kMaxAnswerBytes> answer;
  WEFT_ASSIGN_OR_RETURN(DescriptorMessage message, ReceiveDescriptors(socket_.get(), answer));
  constexpr size_t kHeaderBytes = sizeof(kMagic) + 1;
  if (message.bytes < kHeaderBytes || std::memcmp(answer.data(), kMagic, sizeof(kMagic)) != 0) {
    return absl::UnavailableError("the server gave no answer at its local socket");
  }
  if (answer[sizeof(kMagic)] != kYes) {
    const ByteSpan text = ByteSpan(answer).subspan(kHeaderBytes, message.bytes - kHeaderBytes);
    return absl::FailedPreconditionError(
        StrCat("server: ", Printable(AsStringView(text), kMaxReasonBytes)));
  }
  if (!Has(message, kAnswerDescriptors)) {
    return absl::DataLossError("the server's answer came without a doorbell, a domain or a link");
  }
  Neighbour neighbour;
  neighbour.process = server_process_;
  WEFT_ASSIGN_OR_RETURN(neighbour.doorbell, PeerDoorbell::Open(poller_, std::move(socket_),
                                                               message.descriptors[kPage]));
  neighbour.domain = std::move(message.descriptors[kDomain]);
  neighbour.link = std::move(message.descriptors[kLink]);
  return neighbour;
}

}  // namespace weft
