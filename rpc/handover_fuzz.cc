// What is said over the socket of a handover, for a fuzzer: to a server by processes that want its
// place, and to a server that takes a place by the process that had it.
//
// The first byte chooses the side. Lines are mostly right, with any text, any number of
// descriptors, or descriptors of another kind now and then. A line that needs an answer gets one or
// the end: so nothing here waits for a time to pass. Whatever was said, the server that serves
// hands over to one who is right, who wants to take over comes to an end, and no file is left
// behind.
//
// The servers are real ones, on an engine with a thread. One serves until an input has taken its
// place.

#include <arpa/inet.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/strings.h"
#include "core/testing/fuzz_input.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "transport/descriptor.h"
#include "transport/handover_socket.h"
#include "transport/network.h"

namespace weft::test {
namespace {

constexpr int kMostLines = 24;
constexpr int kPatienceMs = 30'000;  // of a machine that stands still: a hang
constexpr char kListen[] = "127.0.0.1:0";

// What all inputs share.
struct Host {
  Host() {
    WEFT_CHECK(::mkdtemp(folder.data()) != nullptr);
    path = folder + "/path";
    EngineOptions options;
    options.drive = EngineOptions::Drive::kOwnThread;
    options.spin_ns = 0;
    engine = OpenNetworkEngine(options).value();
  }
  // On one engine, for it takes a hundred times as long to make as a server.
  std::unique_ptr<Server> MakeServer(const std::string& its_path) {
    ServerOptions options;
    options.handover_path = its_path;
    options.max_sessions = 0;
    return Server::Create(*engine, options).value();
  }
  // The server that serves.
  void Serve() {
    if (server != nullptr) return;
    server = MakeServer(path);
    WEFT_CHECK(server->AddService(&probe).ok());
    WEFT_CHECK(server->Listen(kListen).ok() && server->Ready().ok());
  }

  std::string folder = "/tmp/weft-handover-fuzz-XXXXXX";
  std::string path;
  std::unique_ptr<Engine> engine;
  ProbeService probe;
  std::unique_ptr<Server> server;
};

Descriptor ListeningSocket() {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  WEFT_CHECK(socket.valid() && ::listen(socket.get(), 8) == 0);
  return socket;
}

class Talk {
 public:
  explicit Talk(FuzzInput input) : input_(input) {}

 protected:
  // Not more than a message may have, but for one that is cut.
  std::string AnyText() {
    const uint8_t how = input_.U8();
    return how < 250 ? input_.Text(how) : std::string(kMaxHandoverText + how - 252, 't');
  }
  // One of the kinds that a process might send by mistake.
  Descriptor AnyDescriptor() {
    int pair[2] = {-1, -1};
    switch (input_.Below(6)) {
      case 0:
        return Descriptor(::eventfd(0, EFD_CLOEXEC));
      case 1: {
        WEFT_CHECK(::pipe(pair) == 0);
        ::close(pair[1]);
        return Descriptor(pair[0]);
      }
      case 2: {
        WEFT_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        ::close(pair[1]);
        return Descriptor(pair[0]);
      }
      case 3:
        return Descriptor(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      case 4:
        return Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      default:
        return ListeningSocket();
    }
  }
  // With any number of descriptors. False: the other end is gone.
  static bool Send(int socket, std::string_view text, const std::vector<Descriptor>& with) {
    char none = 0;
    iovec part{text.empty() ? &none : const_cast<char*>(text.data()), text.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
    if (!with.empty()) {
      const size_t bytes = with.size() * sizeof(int);
      header.msg_control = control;
      header.msg_controllen = CMSG_SPACE(bytes);
      cmsghdr* const rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(bytes);
      for (size_t i = 0; i < with.size(); ++i) {
        const int number = with[i].get();
        std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &number, sizeof(int));
      }
    }
    return ::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
  }

  FuzzInput input_;
};

// To the server that serves, by those who want its place.
class Successors final : Talk {
 public:
  Successors(Host* host, FuzzInput input) : Talk(input), host_(*host) {}

  void Run(uint8_t how) {
    host_.Serve();
    for (int i = 0; i < kMostLines && input_.more() && !handed_; ++i) Line();
    // The server ends while somebody is about to take its place, or has taken it. (Who was told to
    // go is waited for, for seconds.)
    if (ready_) first_.Reset();
    if (handed_ || (how & 2) != 0) host_.server.reset();
    first_.Reset();
    seconds_.clear();
    if (host_.server != nullptr) ExpectServing();
  }

 private:
  void Line() {
    const uint8_t how = input_.U8();
    if (how % 16 == 15) {
      first_.Reset();
      ready_ = false;
      return;
    }
    if (how % 16 == 14) return Second();
    if (how % 16 == 13) return Impatient();
    if (!first_.valid()) first_ = Connect();
    std::vector<Descriptor> with;
    if (how >= 224) {
      for (int count = how % 4; count > 0; --count) with.push_back(AnyDescriptor());
    }
    const std::string text = Text(how % 16);
    if (!Send(first_.get(), text, with)) return Gone();
    const bool is_right = with.size() <= 1 && text.size() <= kMaxHandoverText;
    if (ready_ && is_right && text == "have") {
      WEFT_CHECK(!Listen());  // it is done
      handed_ = true;
      return;
    }
    // An empty message is the end.
    ready_ = Listen() && heard_ == "go";
    if (heard_.starts_with("socket ")) WEFT_CHECK(got_.valid());
  }
  std::string Text(int how) {
    switch (how) {
      case 0:
      case 1:
        return "hello 1";
      case 2:
      case 3:
        return StrCat("take ", kListen);
      case 4:
        return "take " + AnyText();
      case 5:
      case 6:
        return "ready";
      case 7:
      case 8:
        return "have";
      case 9:
        return "go";
      default:
        return AnyText();
    }
  }
  // Beside the first one: it hears that it is refused, or comes when the first one has gone.
  void Second() {
    if (!first_.valid() || seconds_.size() == 4) return;
    seconds_.push_back(Connect());
    static_cast<void>(Send(seconds_.back().get(), input_.Bit() ? "hello 1" : AnyText() + "!", {}));
  }
  // Speaks before it is told to go. A client in its handshake keeps the server waiting for that,
  // if it has seen it by then; else the line comes where `have` belongs.
  void Impatient() {
    Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const std::string at = host_.server->address();
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(at.substr(at.rfind(':') + 1))));
    WEFT_CHECK(
        ::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    if (!first_.valid()) first_ = Connect();
    for (const char* const line : {"hello 1", "ready", "too early"}) {
      if (!Send(first_.get(), line, {})) break;
    }
    // Answers to what was said before.
    while (Listen() && !heard_.starts_with("refused ")) {
    }
    Gone();
  }
  Descriptor Connect() {
    absl::StatusOr<Descriptor> found = ConnectToPredecessor(host_.path);
    WEFT_CHECK(found.ok() && found->valid());
    return *std::move(found);
  }
  void Gone() {
    first_.Reset();
    ready_ = false;
  }
  // What it says. False: it has hung up.
  bool Listen() {
    absl::StatusOr<HandoverMessage> message = ReceiveHandover(first_.get(), kPatienceMs);
    WEFT_CHECK(!absl::IsDeadlineExceeded(message.status()));
    heard_.clear();
    if (message.ok()) {
      heard_ = message->text;
      got_ = std::move(message->descriptor);
      return true;
    }
    Gone();
    return false;
  }
  // Those who have come before, and are gone, do not keep it from whoever is right.
  void ExpectServing() {
    while (true) {
      first_ = Connect();
      if (!Send(first_.get(), "hello 1", {}) || !Listen()) continue;
      if (heard_ == "hello 1") break;
      WEFT_CHECK(heard_.starts_with("refused "));
    }
    WEFT_CHECK(Send(first_.get(), StrCat("take ", kListen), {}) && Listen());
    WEFT_CHECK(heard_ == StrCat("socket ", kListen) && got_.valid());
    first_.Reset();
  }

  Host& host_;
  Descriptor first_;
  std::vector<Descriptor> seconds_;
  bool ready_ = false;  // it waits for `have`
  bool handed_ = false;
  std::string heard_;
  Descriptor got_;
};

// To a server that takes a place.
class Predecessor final : Talk {
 public:
  Predecessor(Host* host, FuzzInput input)
      : Talk(input), host_(*host), folder_(host->folder + "/next") {}

  void Run() {
    WEFT_CHECK(::mkdir(folder_.c_str(), 0700) == 0);
    const std::string path = folder_ + "/path";
    absl::StatusOr<HandoverListener> listener = ListenForSuccessor(path);
    WEFT_CHECK(listener.ok());
    {
      ProbeService probe;
      const std::unique_ptr<Server> next = host_.MakeServer(path);
      WEFT_CHECK(next->AddService(&probe).ok());
      const Descriptor over(::eventfd(0, EFD_CLOEXEC));
      std::thread thread([&] {
        // Whatever they answer: what is theirs is in rpc/handover_test.cc.
        next->Listen(kListen).IgnoreError();
        next->Listen("127.0.0.1:0").IgnoreError();
        next->Ready().IgnoreError();
        WEFT_CHECK(!next->Ready().ok());  // once
        const uint64_t one = 1;
        WEFT_CHECK(::write(over.get(), &one, sizeof(one)) == sizeof(one));
      });
      Answer(listener->socket.get(), over.get());
      thread.join();
    }
    RemoveHandoverFile(*listener);
    WEFT_CHECK(::rmdir(folder_.c_str()) == 0);  // else a file was left behind
  }

 private:
  void Answer(int listening, int over) {
    Descriptor next;
    while (true) {
      pollfd waits[2] = {{next.valid() ? next.get() : listening, POLLIN, 0}, {over, POLLIN, 0}};
      const int ready = ::poll(waits, 2, kPatienceMs);
      if (ready < 0 && errno == EINTR) continue;  // the fuzzer has a timer
      WEFT_CHECK(ready > 0);
      if (waits[1].revents != 0) return;
      if (!next.valid()) {
        absl::StatusOr<Descriptor> come = AcceptSuccessor(listening);
        if (come.ok()) next = *std::move(come);
        continue;
      }
      const absl::StatusOr<HandoverMessage> asked = ReceiveHandover(next.get(), 0);
      // Who has no more to say hangs up: silence would be waited for.
      if (!asked.ok() || !Say(next.get(), asked->text)) next.Reset();
    }
  }
  bool Say(int next, const std::string& asked) {
    const uint8_t how = input_.U8();
    if (how == 0 || how >= 248) return false;
    std::vector<Descriptor> with;
    if (how >= 240) {
      for (int count = how % 4; count > 0; --count) with.push_back(AnyDescriptor());
      return Send(next, AnyText() + "!", with);
    }
    if (how >= 224) return Send(next, "refused " + AnyText(), with);
    const bool right_kind = how < 208;
    if (asked == "hello 1") return Send(next, asked, with);
    if (asked.starts_with("take ")) {
      if (how % 8 == 7) return Send(next, "none " + asked.substr(5), with);
      if (how % 8 != 6) with.push_back(right_kind ? ListeningSocket() : AnyDescriptor());
      return Send(next, "socket " + asked.substr(5), with);
    }
    if (asked == "ready") {
      for (int count = how % 4; count > 0; --count) {
        std::vector<Descriptor> client;
        client.push_back(AnyDescriptor());
        if (!Send(next, StrCat("client ", input_.Bit() ? kListen : "x"), client)) return false;
      }
      return Send(next, "go", with);
    }
    return asked != "have";  // after which nobody listens
  }

  Host& host_;
  const std::string folder_;
};

}  // namespace
}  // namespace weft::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static weft::test::Host* const host = new weft::test::Host;
  weft::FuzzInput input(data, size);
  const uint8_t how = input.U8();
  if ((how & 1) == 0) {
    weft::test::Successors(host, input).Run(how);
  } else {
    weft::test::Predecessor(host, input).Run();
  }
  return 0;
}
