// The socket of a handover alone, for a fuzzer: who listens and connects at which paths, what both
// ends send, and what is taken of it.
//
// The bytes are events: somebody listens, or something else takes the path; a process comes, is
// accepted, says a line, right or not, with descriptors or without; leaves; and now and then this
// process may have no more descriptors. Each end knows what the other has sent, and so what it must
// receive, or which error. In the end every descriptor is closed, and no file is left behind.
//
// What is said over it, and answered, is in rpc/handover_fuzz.cc.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/check.h"
#include "core/testing/descriptors.h"
#include "core/testing/fuzz_input.h"
#include "transport/descriptor.h"
#include "transport/descriptor_message.h"
#include "transport/handover_socket.h"

namespace weft {
namespace {

constexpr int kMostEvents = 80;
// That one end has sent, and the other has not taken: beyond a fourth of the socket's buffer the
// sender waits, for a second.
constexpr size_t kMostUnread = 16;

class World {
 public:
  World(std::string folder, FuzzInput input)
      : folder_(std::move(folder)), path_(folder_ + "/path"), input_(input) {}

  void Run() {
    const int before = CountDescriptors();
    WEFT_CHECK(::mkdir(folder_.c_str(), 0700) == 0);
    for (int i = 0; i < kMostEvents && input_.more(); ++i) Event();
    for (End& end : ends_) end.socket.Reset();
    waiting_.clear();
    Leave();
    Clear();
    WEFT_CHECK(CountDescriptors() == before);
    WEFT_CHECK(::rmdir(folder_.c_str()) == 0);  // else a file was left behind
  }

 private:
  struct Sent {
    std::string text;
    size_t descriptors = 0;
  };
  // Of the connection.
  struct End {
    Descriptor socket;
    std::deque<Sent> unread;  // what the other one has sent
  };
  // What is at the path besides listeners of this kind.
  enum class There : uint8_t { kNothing = 1, kFile = 2, kFolder = 3, kOther = 4 };

  void Event() {
    using Step = void (World::*)();
    static constexpr std::array<Step, 8> kSteps = {&World::Listen,  &World::Occupy, &World::Connect,
                                                   &World::Accept,  &World::Send,   &World::Speak,
                                                   &World::Receive, &World::HangUp};
    const uint8_t event = input_.U8();
    which_ = event / 8 % 2;
    is_odd_ = event >= 128;
    (this->*kSteps[event % kSteps.size()])();
  }
  End& end() { return ends_[which_]; }
  End& other() { return ends_[which_ ^ 1]; }

  // --- paths ------------------------------------------------------------------------------------

  std::string AnyPath() {
    switch (input_.Below(8)) {
      case 4:
        return "";
      case 5:
        return "path";
      case 6:
        return folder_ + "/none/path";
      case 7:  // its own name fits, perhaps, and not the one that it has first
        return folder_ + "/" + std::string(100u - folder_.size() + input_.Below(8), 'p');
      default:
        return path_;
    }
  }
  void Leave() {
    if (listener_.has_value()) RemoveHandoverFile(*listener_);
    listener_.reset();
  }
  // Removes what is there. (A listener that is still there has no file then.)
  void Clear() {
    ::unlink(path_.c_str());
    ::rmdir(path_.c_str());
    there_ = There::kNothing;
    stranger_.Reset();
  }
  void Occupy() {
    Leave();
    Clear();
    switch (input_.Below(4)) {
      case 1:
        stranger_.Reset(::open(path_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        there_ = There::kFile;
        return;
      case 2:
        MakeFolder();
        return;
      case 3: {
        stranger_.Reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path_.data(), path_.size());
        WEFT_CHECK(::bind(stranger_.get(), reinterpret_cast<const sockaddr*>(&address),
                          sizeof(address)) == 0 &&
                   ::listen(stranger_.get(), 8) == 0);
        there_ = There::kOther;
        return;
      }
      default:
        return;
    }
  }
  void MakeFolder() {
    WEFT_CHECK(::mkdir(path_.c_str(), 0700) == 0);
    there_ = There::kFolder;
  }

  // --- who comes --------------------------------------------------------------------------------

  void Listen() {
    const std::string path = AnyPath();
    if (is_odd_) return ListenInVain(path);
    absl::StatusOr<HandoverListener> made = ListenForSuccessor(path);
    const bool may = path == path_ && there_ != There::kFile && there_ != There::kFolder;
    // A long path may fit as it is.
    WEFT_CHECK(made.ok() ? path[0] == '/' && (path != path_ || may) : !may);
    if (!made.ok()) {
      WEFT_CHECK(!made.status().message().empty());
      if (path == path_) WEFT_CHECK(absl::IsAlreadyExists(made.status()));
      return;
    }
    if (path != path_) return RemoveHandoverFile(*made);
    // It is the one that is found, whoever was there before; and the former one leaves its file
    // alone.
    Leave();
    listener_ = *std::move(made);
    stranger_.Reset();
    there_ = There::kNothing;
    waiting_.clear();
    const absl::StatusOr<Descriptor> found = ConnectToPredecessor(path_);
    WEFT_CHECK(found.ok() && found->valid());
    const absl::StatusOr<Descriptor> accepted = AcceptSuccessor(listener_->socket.get());
    WEFT_CHECK(accepted.ok() && accepted->valid() && PeerProcessId(accepted->get()) == ::getpid());
  }
  void ListenInVain(const std::string& path) {
    if (which_ == 0) {
      const FewDescriptors none(0);
      WEFT_CHECK(!PrepareForSuccessor(path).ok() && !ConnectToPredecessor(path).ok());
      return;
    }
    absl::StatusOr<HandoverListener> made = PrepareForSuccessor(path);
    if (!made.ok()) return;
    // A folder comes into its place.
    if (path == path_ && !listener_.has_value() && there_ == There::kNothing) {
      Clear();  // the file of one that has left
      MakeFolder();
      WEFT_CHECK(!TakePath(&*made).ok());
    }
    RemoveHandoverFile(*made);
  }
  void Connect() {
    const std::string path = AnyPath();
    const bool is_there = path == path_ && listener_.has_value();
    if (is_there && waiting_.size() == 4) return;
    absl::StatusOr<Descriptor> found = ConnectToPredecessor(path);
    WEFT_CHECK((found.ok() && found->valid()) == is_there);
    if (is_there) waiting_.push_back(*std::move(found));
    if (path == path_ && there_ == There::kOther) WEFT_CHECK(!found.ok());
  }
  void Accept() {
    if (is_odd_) return AcceptStranger();
    if (!listener_.has_value()) return;
    absl::StatusOr<Descriptor> accepted = AcceptSuccessor(listener_->socket.get());
    WEFT_CHECK(accepted.ok() && accepted->valid() == !waiting_.empty());
    if (waiting_.empty()) return;
    ends_[0] = {*std::move(accepted), {}};
    ends_[1] = {std::move(waiting_.front()), {}};
    waiting_.pop_front();
  }
  // Whom the kernel does not know: over a network.
  void AcceptStranger() {
    const Descriptor listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    auto* const to = reinterpret_cast<sockaddr*>(&address);
    WEFT_CHECK(::bind(listening.get(), to, bytes) == 0 && ::listen(listening.get(), 1) == 0 &&
               ::getsockname(listening.get(), to, &bytes) == 0);
    const Descriptor stranger(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const linger at_once{1, 0};  // no port stays in use
    WEFT_CHECK(::setsockopt(stranger.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
    WEFT_CHECK(::connect(stranger.get(), to, bytes) == 0);
    if (which_ == 1) {
      const FewDescriptors none(0);
      WEFT_CHECK(!AcceptSuccessor(listening.get()).ok());
      return;
    }
    WEFT_CHECK(absl::IsPermissionDenied(AcceptSuccessor(listening.get()).status()));
  }
  void HangUp() { end().socket.Reset(); }

  // --- what is said -----------------------------------------------------------------------------

  std::string AnyText() {
    const uint8_t how = input_.U8();
    if (how >= 240) return std::string(kMaxHandoverText - 8 + how % 16, 't');
    return input_.Text(how);
  }
  // As a process of Weft's sends it.
  void Send() {
    if (!end().socket.valid() || other().unread.size() >= kMostUnread) return;
    const std::string text = AnyText();
    const Descriptor with(is_odd_ ? ::eventfd(0, EFD_CLOEXEC) : -1);
    const absl::Status sent = SendHandover(end().socket.get(), text, with.get());
    if (text.size() > kMaxHandoverText) {
      WEFT_CHECK(absl::IsInvalidArgument(sent));
    } else if (sent.ok()) {
      other().unread.push_back({text, with.valid() ? 1u : 0u});
    } else {
      WEFT_CHECK(absl::IsUnavailable(sent) && !other().socket.valid());
    }
  }
  // As anything else may.
  void Speak() {
    if (!end().socket.valid() || other().unread.size() >= kMostUnread) return;
    const std::string text = AnyText();
    std::vector<Descriptor> with;
    std::vector<int> numbers;
    for (uint32_t count = input_.Below(4); count > 0; --count) {
      with.emplace_back(::eventfd(0, EFD_CLOEXEC));
      numbers.push_back(with.back().get());
    }
    if (SendDescriptors(end().socket.get(), AsBytes(text), numbers).ok()) {
      other().unread.push_back({text, numbers.size()});
    }
  }
  void Receive() {
    if (!end().socket.valid()) return;
    const bool has_all = !is_odd_;
    const bool has_more = !end().unread.empty();
    absl::StatusOr<HandoverMessage> message = absl::UnknownError("");
    {
      std::optional<FewDescriptors> none;
      if (!has_all) none.emplace(0);
      // What is there is not waited for.
      message = ReceiveHandover(end().socket.get(), has_more ? -1 : 0);
    }
    // Who has left unread what this end sent takes with him what he has sent.
    if (absl::IsUnavailable(message.status()) && !other().socket.valid()) {
      return end().socket.Reset();
    }
    if (!has_more) {
      WEFT_CHECK(absl::IsDeadlineExceeded(message.status()));
      return;
    }
    const Sent sent = std::move(end().unread.front());
    end().unread.pop_front();
    Check(message, sent, has_all);
  }
  static void Check(const absl::StatusOr<HandoverMessage>& message, const Sent& sent,
                    bool has_all) {
    const absl::Status status = message.status();
    if (sent.text.size() > kMaxHandoverText) return WEFT_CHECK(absl::IsDataLoss(status));
    if (sent.text.empty()) return WEFT_CHECK(absl::IsUnavailable(status));
    if (!has_all && sent.descriptors > 0) {
      return WEFT_CHECK(absl::IsResourceExhausted(status));
    }
    if (sent.descriptors > 1) return WEFT_CHECK(absl::IsDataLoss(status));
    WEFT_CHECK(status.ok() && message->text == sent.text);
    WEFT_CHECK(message->descriptor.valid() == (sent.descriptors == 1));
  }

  const std::string folder_;
  const std::string path_;
  FuzzInput input_;
  size_t which_ = 0;     // the end that the event is about
  bool is_odd_ = false;  // the event is of the rarer kind
  std::optional<HandoverListener> listener_;
  There there_ = There::kNothing;
  Descriptor stranger_;             // what is there
  std::deque<Descriptor> waiting_;  // to be accepted by the listener
  std::array<End, 2> ends_;
};

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string* const folder = [] {
    auto* const made = new std::string("/tmp/weft-handover-socket-fuzz-XXXXXX");
    WEFT_CHECK(::mkdtemp(made->data()) != nullptr);
    return made;
  }();
  weft::World(*folder + "/in", weft::FuzzInput(data, size)).Run();
  return 0;
}
