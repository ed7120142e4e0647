#include "rpc/naming/etcd_client.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/check.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "google/protobuf/util/json_util.h"
#include "rpc/naming/etcd.pb.h"
#include "rpc/naming/targets.h"
#include "rpc/operation/on_engine.h"

namespace weft {
namespace {

constexpr std::string_view kSignIn = "/v3/auth/authenticate";
constexpr long kConnectTimeoutMs = 2000;  // NOLINT: libcurl's type. Three round trips' losses
// A connection whose host is gone without a word ends after 15 s + 9 * 5 s (Linux' default of 9).
constexpr long kKeepAliveIdleS = 15;  // NOLINT: libcurl's type
constexpr long kKeepAliveEveryS = 5;  // NOLINT: libcurl's type
// CURLOPT_QUICK_EXIT, which libcurl has since 7.87: to end a transfer does not wait for the look-up
// of a name. Older ones say that they do not know it.
constexpr auto kQuickExit = static_cast<CURLoption>(CURLOPTTYPE_LONG + 322);
constexpr size_t kMaxErrorBytes = 512;  // of etcd's own words, in ours

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const bool written = google::protobuf::util::MessageToJsonString(message, &json, options).ok();
  WEFT_CHECK(written);  // Ours: a message of etcd.proto
  return json;
}

bool HasPort(std::string_view endpoint) {
  const size_t colon = endpoint.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view host = endpoint.substr(0, colon);
  const bool is_v6 = host.front() == '[' && host.back() == ']' && host.size() > 2;
  if (!is_v6 && host.find_first_of(":[]") != std::string_view::npos) return false;
  uint16_t port = 0;
  const std::string_view text = endpoint.substr(colon + 1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port != 0;
}

absl::Status CheckOptions(const EtcdOptions& options) {
  if (options.certificate_file.empty() != options.key_file.empty()) {
    return absl::InvalidArgumentError(
        "EtcdOptions::certificate_file and key_file go together: set both, or none");
  }
  if (options.ca_file.empty() && !options.certificate_file.empty()) {
    return absl::InvalidArgumentError(
        "EtcdOptions::certificate_file is for TLS: set EtcdOptions::ca_file as well");
  }
  if (options.user.empty() && !options.password.empty()) {
    return absl::InvalidArgumentError("EtcdOptions::password has no EtcdOptions::user");
  }
  for (const std::string* text : {&options.user, &options.password}) {
    if (std::any_of(text->begin(), text->end(), [](char c) { return c < ' ' || c > '~'; })) {
      return absl::InvalidArgumentError(
          "EtcdOptions::user and password are made of printable ASCII characters");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EtcdTarget> ParseEtcdTarget(std::string_view target, const EtcdOptions& options) {
  const auto wrong = [&](std::string_view what) {
    return absl::InvalidArgumentError(
        StrCat("\"etcd:", target, "\" ", what,
               ": write etcd:HOST:PORT/PREFIX, with further members of the cluster behind the "
               "first as in etcd:HOST:PORT,HOST:PORT/PREFIX"));
  };
  if (const absl::Status status = CheckOptions(options); !status.ok()) return status;
  for (const char c : target) {
    if (c <= ' ' || c > '~') return wrong("has a character that is not printable ASCII");
  }
  const size_t slash = target.find('/');
  if (slash == std::string_view::npos) return wrong("has no prefix");
  EtcdTarget parsed;
  parsed.prefix = target.substr(slash);
  while (parsed.prefix.ends_with('/')) parsed.prefix.pop_back();
  // All of etcd's keys are no service.
  if (parsed.prefix.empty()) return wrong("has no prefix");
  if (parsed.prefix.size() > EtcdTarget::kMaxPrefixBytes) return wrong("has too long a prefix");
  parsed.prefix += '/';
  std::string_view rest = target.substr(0, slash);
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view endpoint = rest.substr(0, comma);
    if (!HasPort(endpoint) || endpoint.find_first_of("@?#\\\"%") != std::string_view::npos) {
      return wrong("has a member without a host or a port");
    }
    parsed.endpoints.emplace_back(endpoint);
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  if (parsed.endpoints.size() > EtcdTarget::kMaxEndpoints) return wrong("has too many members");
  return parsed;
}

// Of one message: a key has three, in an event. An empty object takes half a microsecond and 75
// bytes to read, and 16 MiB of them held the engine for seconds.
constexpr size_t kMaxObjects = size_t{4} * kMaxServersListed;

absl::Status ParseEtcdJson(std::string_view json, google::protobuf::Message* message) {
  const auto objects = static_cast<size_t>(std::count(json.begin(), json.end(), '{'));
  if (objects > kMaxObjects) {
    return absl::UnavailableError(
        StrCat("what etcd has sent has ", objects, " objects; at most ", kMaxObjects, " are read"));
  }
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  message->Clear();
  const auto parsed =
      google::protobuf::util::JsonStringToMessage({json.data(), json.size()}, message, options);
  if (parsed.ok()) return absl::OkStatus();
  return absl::UnavailableError(
      StrCat("what etcd has sent cannot be read: ", parsed.ToString().substr(0, kMaxErrorBytes)));
}

EtcdClient::EtcdClient(EngineCore& engine, std::vector<std::string> endpoints,
                       const EtcdOptions& options, Host& host)
    : curl_(LoadedCurlLibrary()),
      engine_(engine),
      host_(host),
      endpoints_(std::move(endpoints)),
      options_(options),
      // Not all clients ask the same member.
      endpoint_(SecureRandom64() % endpoints_.size()) {}

EtcdClient::~EtcdClient() {
  Cancel();
  if (multi_ != nullptr) curl_.multi_cleanup(multi_);  // closes its sockets, and says so
}

void EtcdClient::Begin(std::string_view path, const google::protobuf::Message& request,
                       bool streams, uint64_t timeout_us) {
  Cancel();
  path_ = path;
  body_ = ToJson(request);
  streams_ = streams;
  timeout_us_ = timeout_us;
  deadline_ns_ = engine_.clock().NowNs() + timeout_us * kNsPerUs;
  signing_ = !options_.user.empty() && token_.empty();
  Send();
}

void EtcdClient::Cancel() {
  ++asked_;
  engine_.timers().Cancel(&deadline_);
  received_.clear();
  looked_at_ = 0;
  if (transfer_ == nullptr) return;
  curl_.multi_remove_handle(multi_, transfer_);
  curl_.easy_cleanup(std::exchange(transfer_, nullptr));
  curl_.slist_free_all(std::exchange(headers_, nullptr));
}

void EtcdClient::NextEndpoint() {
  Cancel();
  endpoint_ = (endpoint_ + 1) % endpoints_.size();
}

// --- libcurl on an engine -----------------------------------------------------------------------

void EtcdClient::Send() {
  if (multi_ == nullptr) {
    multi_ = curl_.multi_init();
    WEFT_CHECK(multi_ != nullptr);  // System: memory for some hundred bytes
    curl_.multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, &EtcdClient::OnSocket);
    curl_.multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
    curl_.multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, &EtcdClient::OnTimerWanted);
    curl_.multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
    curl_.multi_setopt(multi_, CURLMOPT_MAXCONNECTS, 1L);  // between two requests
  }
  if (signing_) {
    rpc::EtcdAuthenticateRequest request;
    request.set_name(options_.user);
    request.set_password(options_.password);
    sent_ = ToJson(request);
  } else {
    sent_ = body_;
  }
  header_bytes_ = 0;
  too_much_ = false;
  error_[0] = '\0';
  SetUp(StrCat(options_.ca_file.empty() ? "http://" : "https://", endpoint(),
               signing_ ? kSignIn : std::string_view(path_)));
  engine_.timers().Schedule(&deadline_, deadline_ns_);
  curl_.multi_add_handle(multi_, transfer_);  // begins with a timer; if not, the deadline ends it
}

void EtcdClient::SetUp(const std::string& url) {
  transfer_ = curl_.easy_init();
  WEFT_CHECK(transfer_ != nullptr);  // System: memory for some thousand bytes
  const auto set = [this](CURLoption option, auto value) {
    curl_.easy_setopt(transfer_, option, value);
  };
  const auto add = [this](const std::string& header) {
    headers_ = curl_.slist_append(headers_, header.c_str());
  };
  add("Content-Type: application/json");
  add("Expect:");  // no question before a body
  // A member that has lost its leader says so, instead of nothing.
  add("Grpc-Metadata-hasleader: true");
  if (!signing_ && !token_.empty()) add(StrCat("Authorization: ", token_));
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_HTTPHEADER, headers_);
  set(CURLOPT_POSTFIELDSIZE, static_cast<long>(sent_.size()));  // NOLINT: libcurl's type
  set(CURLOPT_POSTFIELDS, sent_.c_str());
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));  // NOLINT: libcurl's type
  set(CURLOPT_PROXY, "");  // whatever the environment says
  set(CURLOPT_NOSIGNAL, 1L);
  set(kQuickExit, 1L);
  set(CURLOPT_CONNECTTIMEOUT_MS, kConnectTimeoutMs);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_TCP_KEEPIDLE, kKeepAliveIdleS);
  set(CURLOPT_TCP_KEEPINTVL, kKeepAliveEveryS);
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(error_));
  set(CURLOPT_WRITEFUNCTION, &EtcdClient::OnBytes);
  set(CURLOPT_WRITEDATA, this);
  set(CURLOPT_HEADERFUNCTION, &EtcdClient::OnHeader);
  set(CURLOPT_HEADERDATA, this);
  if (options_.ca_file.empty()) return;
  set(CURLOPT_CAINFO, options_.ca_file.c_str());
  set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));  // who is in the file, and nobody else
  if (options_.certificate_file.empty()) return;
  set(CURLOPT_SSLCERT, options_.certificate_file.c_str());
  set(CURLOPT_SSLKEY, options_.key_file.c_str());
}

int EtcdClient::OnSocket(CURL*, curl_socket_t number, int what, void* client, void*) {
  EtcdClient& self = *static_cast<EtcdClient*>(client);
  Poller& poller = self.engine_.poller();
  const auto found = std::find_if(self.sockets_.begin(), self.sockets_.end(),
                                  [&](const auto& s) { return s->number == number && !s->closed; });
  if (what == CURL_POLL_REMOVE) {
    if (found == self.sockets_.end()) return 0;
    poller.Remove(number);
    (*found)->closed = true;  // destroyed later: this may be inside its OnReady()
    return 0;
  }
  const uint32_t events =
      ((what & CURL_POLL_IN) != 0 ? EPOLLIN : 0u) | ((what & CURL_POLL_OUT) != 0 ? EPOLLOUT : 0u);
  if (found != self.sockets_.end()) {
    static_cast<void>(poller.Modify(number, events));
    return 0;
  }
  auto socket = std::make_unique<Socket>();
  socket->client = &self;
  socket->number = number;
  // Without it the request ends by its deadline.
  if (poller.Add(number, events, socket.get()).ok()) self.sockets_.push_back(std::move(socket));
  return 0;
}

int EtcdClient::OnTimerWanted(CURLM*, long ms, void* client) {  // NOLINT(google-runtime-int)
  EtcdClient& self = *static_cast<EtcdClient*>(client);
  if (ms < 0) {
    self.engine_.timers().Cancel(&self.timeout_);
  } else {
    // Not early: libcurl would not ask again. Some versions cut what is less than a millisecond.
    ScheduleIn(self.engine_, self.timeout_, ms == 0 ? 0 : (static_cast<uint64_t>(ms) + 1) * 1000);
  }
  return 0;
}

size_t EtcdClient::OnHeader(char*, size_t size, size_t count, void* client) {
  EtcdClient& self = *static_cast<EtcdClient*>(client);
  self.header_bytes_ += size * count;
  self.too_much_ |= self.header_bytes_ > kMaxHeaderBytes;
  return self.too_much_ ? 0 : size * count;
}

size_t EtcdClient::OnBytes(char* bytes, size_t size, size_t count, void* client) {
  EtcdClient& self = *static_cast<EtcdClient*>(client);
  self.too_much_ |= self.received_.size() + size * count > kMaxMessageBytes;
  if (self.too_much_) return 0;
  self.received_.append(bytes, size * count);
  return size * count;
}

void EtcdClient::OnReady(curl_socket_t number, uint32_t events) {
  const int what = ((events & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) |
                   ((events & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
                   ((events & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);
  int running = 0;
  curl_.multi_socket_action(multi_, number, what, &running);
  LookWhatCame();
}

void EtcdClient::OnTimeout() {
  int running = 0;
  curl_.multi_socket_action(multi_, CURL_SOCKET_TIMEOUT, 0, &running);
  LookWhatCame();
}

void EtcdClient::OnDeadline() {
  const bool is_seconds = timeout_us_ % 1'000'000 == 0;
  End(absl::UnavailableError(StrCat(
      "no answer within ", timeout_us_ / (is_seconds ? 1'000'000 : 1000), is_seconds ? " s" : " ms",
      error_[0] == '\0' ? "" : ": ", static_cast<const char*>(error_))));
}

// --- replies ------------------------------------------------------------------------------------

// Outside of libcurl, where its functions may be called.
void EtcdClient::LookWhatCame() {
  std::erase_if(sockets_, [](const auto& socket) { return socket->closed; });
  if (transfer_ == nullptr || !DeliverLines()) return;
  int left = 0;
  while (const CURLMsg* message = curl_.multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE || message->easy_handle != transfer_) continue;
    return OnTransferEnd(message->data.result);
  }
}

// The reply is what was asked for, and no error.
bool EtcdClient::Answers() {
  long code = 0;  // NOLINT(google-runtime-int): libcurl's
  curl_.easy_getinfo(transfer_, CURLINFO_RESPONSE_CODE, &code);
  return code == 200;
}

// The lines of a stream that are complete. False: the Host has asked something else.
bool EtcdClient::DeliverLines() {
  if (!streams_ || signing_ || !Answers()) return true;
  const std::string_view fresh = std::string_view(received_).substr(looked_at_);
  const size_t last = fresh.rfind('\n');
  if (last == std::string_view::npos) {
    looked_at_ = received_.size();
    return true;
  }
  const uint64_t asked = asked_;
  // A buffer that is this function's: the Host may cancel.
  std::string lines = received_.substr(looked_at_ + last + 1);
  std::swap(lines, received_);
  lines.resize(lines.size() - received_.size());
  looked_at_ = received_.size();
  for (size_t at = 0; at < lines.size();) {
    const size_t next = lines.find('\n', at);
    const std::string_view line = std::string_view(lines).substr(at, next - at);
    at = next + 1;
    if (line.empty()) continue;
    engine_.timers().Cancel(&deadline_);
    host_.OnEtcdMessage(line);
    if (asked_ != asked) return false;
  }
  return true;
}

void EtcdClient::OnTransferEnd(CURLcode result) {
  if (result != CURLE_OK || !Answers()) return End(Failure(result));
  if (signing_) {
    rpc::EtcdAuthenticateReply reply;
    absl::Status status = ParseEtcdJson(received_, &reply);
    // It becomes a header.
    const bool usable = std::all_of(reply.token().begin(), reply.token().end(),
                                    [](char c) { return c > ' ' && c <= '~'; });
    if (status.ok() && (reply.token().empty() || !usable)) {
      status = absl::UnavailableError("it has sent no token");
    }
    if (!status.ok()) return End(status);
    Cancel();
    token_ = reply.token();
    signing_ = false;
    return Send();
  }
  // A stream's last line may lack its end.
  const std::string last = std::exchange(received_, {});
  const uint64_t asked = asked_;
  if (!last.empty() || !streams_) host_.OnEtcdMessage(last);
  if (asked_ == asked) End(absl::OkStatus());
}

// What an ended transfer means that has brought no reply.
absl::Status EtcdClient::Failure(CURLcode result) {
  if (too_much_) {
    return absl::UnavailableError(StrCat("more was sent than ", kMaxMessageBytes,
                                         " bytes of a message, or ", kMaxHeaderBytes,
                                         " of headers"));
  }
  if (result != CURLE_OK) {
    return absl::UnavailableError(error_[0] != '\0' ? static_cast<const char*>(error_)
                                                    : curl_.easy_strerror(result));
  }
  long code = 0;  // NOLINT(google-runtime-int): libcurl's
  curl_.easy_getinfo(transfer_, CURLINFO_RESPONSE_CODE, &code);
  rpc::EtcdError error;
  const bool is_etcds = ParseEtcdJson(received_, &error).ok() && error.code() != 0;
  std::string words = is_etcds ? StrCat("etcd says: ", error.message().substr(0, kMaxErrorBytes))
                               : StrCat("it answers with the HTTP status ", code);
  const auto meaning = static_cast<absl::StatusCode>(is_etcds ? error.code() : 0);
  switch (meaning) {
    case absl::StatusCode::kUnauthenticated:
      token_.clear();  // it may have been of a time before: the next request signs in
      [[fallthrough]];
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
      return absl::Status(meaning, words);
    default:
      return absl::UnavailableError(words);
  }
}

void EtcdClient::End(const absl::Status& status) {
  if (status.ok()) {
    Cancel();
    return host_.OnEtcdEnd(status);
  }
  const absl::Status told = Annotate(status, StrCat("etcd at ", endpoint()));
  NextEndpoint();
  host_.OnEtcdEnd(told);
}

}  // namespace weft
