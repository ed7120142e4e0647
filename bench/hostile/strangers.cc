#include "bench/hostile/strangers.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/hostile/sockets.h"
#include "bench/hostile/wiretap.h"
#include "bench/perf/ends/perf.pb.h"
#include "bench/perf/ends/perf.weft.h"
#include "bench/perf/ends/polled_server.h"
#include "core/random.h"
#include "core/status.h"
#include "rpc/client/channel.h"

namespace weft::bench {
namespace {

constexpr uint64_t kMsNs = 1'000'000;
constexpr uint64_t kTickNs = kMsNs;
// On one host the kernel answers within microseconds, unless the server's queue is full: then it
// says nothing, and TCP asks again after a second, for which no attacker waits.
constexpr uint64_t kAnswerNs = 100 * kMsNs;

// What one stranger does: connects, says `words` step by step, stays, and hangs up.
struct Visit {
  std::string words;
  size_t step_bytes = ~size_t{0};  // of words, at a time
  uint64_t step_ns = 0;            // between two steps
  uint64_t stay_ns = 0;            // behind the last one
  bool by_reset = false;           // hangs up so
};

// How many come.
struct Crowd {
  uint32_t per_second = 0;
  size_t at_once = 0;
};

// Every second visit is from this host's own address, as the honest clients' are, the others from
// as many other addresses of the loopback network as there are.
uint32_t SourceOf(Random& random) {
  if (random.Chance(0.5)) return 0;
  return 0x7F000000u | static_cast<uint32_t>(random.UniformInRange(0x100, 0xFFFFFE));
}

class Visits {
 public:
  Visits(const AttackOptions& options, Crowd crowd)
      : clock_(options.seconds),
        crowd_{options.per_second != 0 ? options.per_second : crowd.per_second, crowd.at_once},
        target_(ParseAddress(options.address)),
        random_(options.seed) {}

  AttackReport Run(const std::function<Visit(Random&)>& next) {
    double due = 0;
    const uint64_t start_ns = AttackClock::NowNs();
    uint64_t before_ns = start_ns;
    // What a machine that is too slow has missed is not made good, nor more than the clock allows.
    const double most_due = std::min<double>(crowd_.per_second / 10.0, crowd_.at_once);
    while (!clock_.over()) {
      const uint64_t now_ns = AttackClock::NowNs();
      due += static_cast<double>(now_ns - before_ns) * crowd_.per_second / kNsPerSec;
      due = std::min(due, most_due);
      before_ns = now_ns;
      for (Guest& guest : guests_) Step(guest, now_ns);
      std::erase_if(guests_, [](const Guest& guest) { return !guest.socket.valid(); });
      for (; due >= 1 && guests_.size() < crowd_.at_once; --due) Admit(next(random_), now_ns);
      const timespec tick = {0, kTickNs};
      nanosleep(&tick, nullptr);
    }
    report_["ms"] = (AttackClock::NowNs() - start_ns) / kMsNs;
    return std::move(report_);
  }

 private:
  struct Guest {
    Descriptor socket;
    Visit visit;
    size_t said = 0;
    uint64_t due_ns = 0;  // until it is connected: when it is given up
    bool connected = false;
  };

  void Admit(Visit visit, uint64_t now_ns) {
    ++report_["begun"];
    Guest guest{StartConnect(target_, SourceOf(random_)), std::move(visit)};
    guest.due_ns = now_ns + kAnswerNs;
    if (!guest.socket.valid()) {
      ++report_["connects_failed"];
      return;
    }
    if (guest.visit.by_reset) CloseByReset(guest.socket);
    Step(guest, now_ns);
    if (guest.socket.valid()) guests_.push_back(std::move(guest));
  }

  // Also closes it.
  void Step(Guest& guest, uint64_t now_ns) {
    if (!guest.connected) {
      pollfd watch{guest.socket.get(), POLLOUT, 0};
      if (::poll(&watch, 1, 0) != 1) {
        if (now_ns >= guest.due_ns) Lose(guest, "unanswered");
        return;
      }
      if ((watch.revents & (POLLERR | POLLHUP)) != 0) return Lose(guest, "connects_failed");
      guest.connected = true;
      guest.due_ns = 0;
      ++report_["connections"];
      if (guest.visit.words.empty() && guest.visit.stay_ns == 0) return guest.socket.Reset();
    }
    if (now_ns < guest.due_ns) return;
    if (HasHungUp(guest)) return Lose(guest, "put_out");
    if (guest.said == guest.visit.words.size()) {
      if (guest.due_ns == 0 && guest.visit.stay_ns > 0) {
        guest.due_ns = now_ns + guest.visit.stay_ns;
      } else {
        guest.socket.Reset();
      }
      return;
    }
    Say(guest);
    const bool more = guest.said < guest.visit.words.size();
    guest.due_ns = now_ns + (more ? guest.visit.step_ns : guest.visit.stay_ns);
  }

  void Say(Guest& guest) {
    const size_t bytes = std::min(guest.visit.words.size() - guest.said, guest.visit.step_bytes);
    const ssize_t sent =
        ::send(guest.socket.get(), guest.visit.words.data() + guest.said, bytes, MSG_NOSIGNAL);
    if (sent > 0) guest.said += static_cast<size_t>(sent);
  }

  // Throws away what the server has said.
  static bool HasHungUp(const Guest& guest) {
    char bytes[16 << 10];
    ssize_t count;
    while ((count = ::recv(guest.socket.get(), bytes, sizeof(bytes), 0)) > 0) {
    }
    return count == 0 || errno != EAGAIN;
  }

  void Lose(Guest& guest, const char* how) {
    ++report_[how];
    guest.socket.Reset();
  }

  const AttackClock clock_;
  const Crowd crowd_;
  const sockaddr_in target_;
  Random random_;
  AttackReport report_;
  std::vector<Guest> guests_;
};

// What an honest client says until its first call has been answered.
absl::StatusOr<Recording> Record(const AttackOptions& options) {
  Wiretap wiretap(options.address, /*tamper_every=*/0, /*spared_bytes=*/0, options.seed);
  ChannelOptions channel_options;
  channel_options.link = OnlyPath(options.path);
  channel_options.security = SecurityOf(options.tls_folder, "client");
  WEFT_ASSIGN_OR_RETURN(auto channel, Channel::Open(wiretap.address(), channel_options));
  EchoMessage reply;
  WEFT_RETURN_IF_ERROR(Perf::Stub(*channel).Echo({}, &reply, {}));
  return wiretap.TakeRecording();
}

std::string Mutated(std::string text, Random& random) {
  if (text.empty()) return text;
  for (uint64_t changes = random.UniformInRange(1, 8); changes > 0; --changes) {
    text[random.Uniform(text.size())] = static_cast<char>(random.Next64());
  }
  if (random.Chance(0.3)) text.resize(random.Uniform(text.size()) + 1);
  if (random.Chance(0.3)) text.insert(random.Uniform(text.size()), text);
  return text;
}

std::string RandomBytes(Random& random, size_t bytes) {
  std::string text(bytes, '\0');
  for (char& byte : text) byte = static_cast<char>(random.Next64());
  return text;
}

}  // namespace

absl::StatusOr<AttackReport> RunStrangers(const AttackOptions& options) {
  return Visits(options, {10'000, 1'000}).Run([](Random& random) {
    Visit visit;
    visit.by_reset = random.Chance(0.5);
    return visit;
  });
}

absl::StatusOr<AttackReport> RunHalfOpen(const AttackOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const Recording recording, Record(options));
  return Visits(options, {2'000, 2'000}).Run([&](Random& random) {
    Visit visit;
    visit.by_reset = true;
    visit.stay_ns = 10 * kNsPerSec;
    const uint64_t kind = random.Uniform(3);
    if (kind == 0) return visit;
    visit.words = recording.hello.substr(0, random.Uniform(recording.hello.size()));
    if (kind == 1) return visit;
    visit.step_bytes = 1;
    visit.step_ns = kNsPerSec;
    return visit;
  });
}

absl::StatusOr<AttackReport> RunGarbage(const AttackOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const Recording recording, Record(options));
  return Visits(options, {5'000, 500}).Run([&](Random& random) {
    Visit visit;
    visit.by_reset = random.Chance(0.8);
    visit.stay_ns = 50 * kMsNs;
    switch (random.Uniform(4)) {
      case 0:
        visit.words = RandomBytes(random, 1 + random.Uniform(4096));
        break;
      case 1:
        visit.words = "GET / HTTP/1.1\r\nHost: weft\r\n\r\n";
        break;
      case 2:
        visit.words = Mutated(recording.join.empty() ? recording.hello : recording.join, random);
        break;
      default:
        visit.words = Mutated(recording.control, random);
    }
    return visit;
  });
}

absl::StatusOr<AttackReport> RunReplay(const AttackOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const Recording recording, Record(options));
  return Visits(options, {3'000, 500}).Run([&](Random& random) {
    Visit visit;
    visit.by_reset = random.Chance(0.8);
    visit.stay_ns = 100 * kMsNs;
    visit.words = recording.join.empty() || random.Chance(0.5) ? recording.control : recording.join;
    return visit;
  });
}

absl::StatusOr<AttackReport> RunHellos(const AttackOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const Recording recording, Record(options));
  return Visits(options, {10'000, 2'000}).Run([&](Random& random) {
    Visit visit;
    visit.words = recording.hello;
    visit.by_reset = true;
    visit.stay_ns = random.Chance(0.5) ? 0 : kNsPerSec;
    return visit;
  });
}

}  // namespace weft::bench
