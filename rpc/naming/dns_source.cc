#include "rpc/naming/dns_source.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/epoll.h>
#include <sys/time.h>

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

#include "core/process_wide.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/operation/on_engine.h"

namespace weft {
namespace {

constexpr int kClassIn = 1;            // RFC 1035
constexpr int kTypeSrv = 33;           // RFC 2782
constexpr int kFirstTimeoutMs = 1000;  // doubled by c-ares with each try
constexpr int kTries = 3;

bool ToPort(std::string_view text, uint16_t* port) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *port);
  return error == std::errc() && end == text.data() + text.size() && *port != 0;
}

// "1.2.3.4:80" or "[::1]:80"; empty: neither family.
std::string AddressText(const sockaddr& address, uint16_t port) {
  char text[INET6_ADDRSTRLEN];
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return StrCat(text, ":", port);
  }
  if (address.sa_family != AF_INET6) return {};
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  return StrCat("[", text, "]:", port);
}

// Not made twice: it counts, and takes no two threads at once.
absl::Status StartLibrary() {
  static constinit ProcessWide<absl::Status> started;
  const auto start = [] {
    const int status = ares_library_init(ARES_LIB_INIT_ALL);
    return status == ARES_SUCCESS ? absl::OkStatus()
                                  : absl::UnavailableError(ares_strerror(status));
  };
  return Annotate(started.GetOnce(start, [] { return LostInFork("c-ares"); }),
                  "cannot ask name servers");
}

}  // namespace

absl::StatusOr<std::unique_ptr<AddressSource>> MakeDnsSource(std::string_view name) {
  const auto wrong = [&](std::string_view what) {
    return absl::InvalidArgumentError(
        StrCat("\"dns:", name, "\" ", what,
               ": write dns:HOST:PORT or dns:_SERVICE._PROTOCOL.NAME, and //SERVER/ behind dns: "
               "for another name server than those of /etc/resolv.conf"));
  };
  std::string_view rest = name;
  std::string_view name_server;
  if (rest.starts_with("//")) {
    const size_t end = rest.find('/', 2);
    if (end == std::string_view::npos || end == 2) return wrong("names no server and no name");
    name_server = rest.substr(2, end - 2);
    rest = rest.substr(end + 1);
  }
  uint16_t port = 0;
  if (!rest.starts_with('_')) {
    const size_t colon = rest.rfind(':');
    if (colon == std::string_view::npos || !ToPort(rest.substr(colon + 1), &port)) {
      return wrong("has no port");
    }
    rest = rest.substr(0, colon);
  }
  if (rest.empty() || rest.find_first_of(":/@ ") != std::string_view::npos) {
    return wrong("has no name");
  }
  return std::unique_ptr<AddressSource>(
      std::make_unique<DnsSource>(std::string(rest), port, std::string(name_server)));
}

DnsSource::~DnsSource() { CloseResolver(); }

void DnsSource::Start(EngineCore& engine, Host* host, uint64_t refresh_us) {
  engine_ = &engine;
  host_ = host;
  refresh_us_ = refresh_us;
  engine.timers().Schedule(&next_, 0);
}

void DnsSource::Refresh() {
  if (asking_ > 0) return;
  const uint64_t soonest_ns = asked_ns_ + kLeastPauseUs * kNsPerUs;
  if (!next_.armed() || next_.deadline_ns() > soonest_ns) {
    engine_->timers().Schedule(&next_, soonest_ns);
  }
}

// --- c-ares on an engine ------------------------------------------------------------------------

absl::Status DnsSource::OpenResolver() {
  WEFT_RETURN_IF_ERROR(StartLibrary());
  ares_options options = {};
  options.timeout = kFirstTimeoutMs;
  options.tries = kTries;
  options.sock_state_cb = &DnsSource::OnSocketState;
  options.sock_state_cb_data = this;
  int status = ares_init_options(&resolver_, &options,
                                 ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB);
  if (status == ARES_SUCCESS && !name_server_.empty()) {
    status = ares_set_servers_ports_csv(resolver_, name_server_.c_str());
  }
  if (status == ARES_SUCCESS) return absl::OkStatus();
  CloseResolver();
  return absl::UnavailableError(StrCat("cannot ask name servers",
                                       name_server_.empty() ? "" : " at ", name_server_, ": ",
                                       ares_strerror(status)));
}

void DnsSource::CloseResolver() {
  if (resolver_ == nullptr) return;
  ares_destroy(std::exchange(resolver_, nullptr));  // closes its sockets, and says so
  sockets_.clear();
}

void DnsSource::OnSocketState(void* source, ares_socket_t number, int readable, int writable) {
  DnsSource& self = *static_cast<DnsSource*>(source);
  Poller& poller = self.engine_->poller();
  const auto found = std::find_if(self.sockets_.begin(), self.sockets_.end(),
                                  [&](const auto& s) { return s->number == number && !s->closed; });
  if (readable == 0 && writable == 0) {
    if (found == self.sockets_.end()) return;
    poller.Remove(number);
    (*found)->closed = true;  // destroyed later: this may be inside its OnReady()
    return;
  }
  const uint32_t events = (readable != 0 ? EPOLLIN : 0u) | (writable != 0 ? EPOLLOUT : 0u);
  if (found != self.sockets_.end()) {
    static_cast<void>(poller.Modify(number, events));
    return;
  }
  auto socket = std::make_unique<Socket>();
  socket->source = &self;
  socket->number = number;
  // Without it the question ends by its time-out.
  if (poller.Add(number, events, socket.get()).ok()) self.sockets_.push_back(std::move(socket));
}

void DnsSource::OnReady(ares_socket_t number, uint32_t events) {
  const bool readable = (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0;
  const bool writable = (events & EPOLLOUT) != 0;
  ares_process_fd(resolver_, readable ? number : ARES_SOCKET_BAD,
                  writable ? number : ARES_SOCKET_BAD);
  OnAnswered();
}

void DnsSource::OnTimeout() {
  if (resolver_ != nullptr) ares_process_fd(resolver_, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
  OnAnswered();
}

// When c-ares wants to look at its clock.
void DnsSource::ScheduleTimeout() {
  timeval longest = {kFirstTimeoutMs / 1000, 0};
  timeval place = {};
  const timeval* const left = ares_timeout(resolver_, &longest, &place);
  const uint64_t us =
      static_cast<uint64_t>(left->tv_sec) * 1'000'000 + static_cast<uint64_t>(left->tv_usec);
  ScheduleIn(*engine_, timeout_, us + 1);
}

// --- questions ----------------------------------------------------------------------------------

void DnsSource::LookUp() {
  asked_ns_ = engine_->clock().NowNs();
  found_.clear();
  ++look_ups_;
  failure_ = absl::OkStatus();
  if (resolver_ == nullptr) failure_ = OpenResolver();
  if (!failure_.ok()) return End();
  ++asking_;  // this function: answers may come inside
  if (port_ != 0) {
    Ask(name_.c_str(), port_, 0);
  } else {
    ++asking_;
    ares_query(resolver_, name_.c_str(), kClassIn, kTypeSrv, &DnsSource::OnServices, this);
  }
  --asking_;
  OnAnswered();
}

void DnsSource::Ask(const char* host, uint16_t port, uint32_t priority) {
  questions_.push_back(std::make_unique<Question>(Question{this, host, port, priority}));
  ++asking_;
  ares_addrinfo_hints hints = {};
  hints.ai_flags = ARES_AI_NOSORT;  // else c-ares opens sockets to see which it could reach
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  ares_getaddrinfo(resolver_, host, nullptr, &hints, &DnsSource::OnAddresses,
                   questions_.back().get());
}

void DnsSource::OnServices(void* source, int status, int, unsigned char* answer, int bytes) {
  if (status == ARES_EDESTRUCTION) return;
  DnsSource& self = *static_cast<DnsSource*>(source);
  if (status == ARES_SUCCESS) {
    self.TakeServices(answer, bytes);
  } else {
    self.failure_ = absl::UnavailableError(
        StrCat("the name ", self.name_, " has no SRV records: ", ares_strerror(status)));
  }
  --self.asking_;
}

void DnsSource::TakeServices(const unsigned char* answer, int bytes) {
  ares_srv_reply* services = nullptr;
  const int status = ares_parse_srv_reply(answer, bytes, &services);
  if (status != ARES_SUCCESS) {
    failure_ = absl::UnavailableError(
        StrCat("the SRV records of ", name_, " cannot be read: ", ares_strerror(status)));
  }
  uint32_t hosts = 0;
  for (const ares_srv_reply* one = services; one != nullptr && hosts < kMaxHosts;
       one = one->next, ++hosts) {
    // RFC 2782: "." says that there is no such service.
    if (one->port == 0 || one->host[0] == '\0' || std::string_view(one->host) == ".") continue;
    Ask(one->host, one->port, one->priority);
  }
  if (services != nullptr) ares_free_data(services);
}

void DnsSource::OnAddresses(void* question, int status, int, ares_addrinfo* result) {
  if (status == ARES_EDESTRUCTION) return;
  const Question& asked = *static_cast<Question*>(question);
  DnsSource& self = *asked.source;
  Known& known = self.known_[StrCat(asked.host, ":", asked.port)];
  known.look_up = self.look_ups_;
  if (status == ARES_SUCCESS) {
    known.addresses.clear();
    for (const ares_addrinfo_node* node = result->nodes; node != nullptr; node = node->ai_next) {
      std::string address = AddressText(*node->ai_addr, asked.port);
      if (!address.empty()) known.addresses.push_back(std::move(address));
    }
  } else {
    self.failure_ = absl::UnavailableError(
        StrCat("the name ", self.name_, " has no addresses: ", ares_strerror(status)));
    // That there is none is an answer; all else says nothing about the host's servers.
    if (self.port_ != 0 || status == ARES_ENOTFOUND || status == ARES_ENODATA) {
      known.addresses.clear();
    }
  }
  for (const std::string& address : known.addresses) {
    if (self.found_.size() >= kMaxServersListed) break;
    self.found_.push_back({address, "", asked.priority});
  }
  if (result != nullptr) ares_freeaddrinfo(result);
  --self.asking_;
}

// Not inside a callback of c-ares.
void DnsSource::OnAnswered() {
  std::erase_if(sockets_, [](const auto& socket) { return socket->closed; });
  if (asking_ > 0) return ScheduleTimeout();
  if (next_.armed()) return;  // it was over before
  End();
}

void DnsSource::End() {
  engine_->timers().Cancel(&timeout_);
  questions_.clear();
  ScheduleIn(*engine_, next_, refresh_us_);
  if (found_.empty()) {
    CloseResolver();
    if (failure_.ok()) {
      failure_ = absl::UnavailableError(StrCat("the name ", name_, " has no addresses"));
    }
    return host_->OnSourceFailed(failure_);
  }
  // In an order that does not change with each answer.
  const auto order = [](const ListedServer& s) { return std::tie(s.priority, s.address); };
  std::sort(found_.begin(), found_.end(),
            [&](const ListedServer& a, const ListedServer& b) { return order(a) < order(b); });
  std::erase_if(known_, [this](const auto& one) { return one.second.look_up != look_ups_; });
  host_->OnServers(std::exchange(found_, {}));
}

}  // namespace weft
