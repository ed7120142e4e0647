#include "bench/instructions/c_ends.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "bench/perf/ends/polled_server.h"
#include "core/check.h"
#include "core/status.h"
#include "weft/c.h"
#include "weft/c_server.h"

namespace weft::bench {
namespace {

constexpr char kService[] = "weft.bench.CEcho";

// Of options: all zero, and the size.
template <class Options>
Options Defaults() {
  Options options = {};
  options.struct_size = sizeof(options);
  return options;
}

// Frees it.
absl::Status FromC(weft_status* status) {
  if (status == nullptr) return absl::OkStatus();
  absl::Status taken(static_cast<absl::StatusCode>(weft_status_code(status)),
                     weft_status_message(status));
  weft_status_free(status);
  return taken;
}

// As programs in C answer: what has come is copied into the memory that leaves.
void Echo(void*, weft_server_call* call) {
  const weft_bytes request = weft_server_call_request(call);
  void* const room = weft_server_call_reserve(call, request.size);
  std::copy_n(static_cast<const char*>(request.data), request.size, static_cast<char*>(room));
  weft_server_call_finish(call, nullptr, {room, request.size});
}

}  // namespace

class CEnds::Impl {
 public:
  absl::Status Open(PathKind path) {
    const std::string path_name(PathKindName(path));
    auto drive = Defaults<weft_engine_options>();
    drive.drive = WEFT_EXTERNAL;
    WEFT_RETURN_IF_ERROR(FromC(weft_engine_new(&drive, &server_engine_)));
    WEFT_RETURN_IF_ERROR(FromC(weft_engine_new(&drive, &client_engine_)));
    auto server = Defaults<weft_server_options>();
    server.paths = path_name.c_str();
    WEFT_RETURN_IF_ERROR(FromC(weft_server_new(server_engine_, &server, &server_)));
    weft_service* const service = weft_service_new(kService);
    WEFT_RETURN_IF_ERROR(
        FromC(weft_service_add_method(service, "Call", WEFT_UNARY, WEFT_ONCE, Echo, nullptr)));
    WEFT_RETURN_IF_ERROR(FromC(weft_server_add_service(server_, service)));
    WEFT_RETURN_IF_ERROR(FromC(weft_server_listen(server_, kAnyPort)));
    auto channel = Defaults<weft_channel_options>();
    channel.paths = path_name.c_str();
    // Under valgrind everything takes fifty times as long.
    channel.connect_timeout_us = 60'000'000;
    channel.connect_later = 1;  // while it is polled
    WEFT_RETURN_IF_ERROR(FromC(
        weft_channel_open(client_engine_, weft_server_address(server_), &channel, &channel_)));
    return FromC(weft_channel_method(channel_, kService, "Call", WEFT_UNARY, WEFT_ONCE, &method_));
  }

  ~Impl() {
    weft_status_free(weft_channel_free(channel_));
    for (const Lane& lane : lanes_) weft_message_free(lane.reply);
    weft_status_free(weft_server_free(server_));
    weft_status_free(weft_engine_free(client_engine_));
    weft_status_free(weft_engine_free(server_engine_));
  }

  Turns CallByCallback(uint64_t calls, uint64_t outstanding) {
    turns_ = {};
    while (lanes_.size() < outstanding) lanes_.push_back({this, weft_message_new()});
    to_start_ = calls;
    to_end_ = calls;
    for (uint64_t i = 0; i < outstanding && to_start_ > 0; ++i) StartNext(&lanes_[i]);
    while (to_end_ > 0) {
      Count(weft_engine_poll(client_engine_, 0));
      Count(weft_engine_poll(server_engine_, 0));
    }
    return turns_;
  }

 private:
  // One call of those that are outstanding.
  struct Lane {
    Impl* ends;
    weft_message* reply;
  };

  void StartNext(Lane* lane) {
    --to_start_;
    weft_status* const status = weft_call_start(
        channel_, method_, {request_.data(), request_.size()}, nullptr, lane->reply, OnDone, lane);
    WEFT_CHECK(status == nullptr);
  }
  static void OnDone(void* arg, weft_status* status) {
    WEFT_CHECK(status == nullptr);
    auto* const lane = static_cast<Lane*>(arg);
    --lane->ends->to_end_;
    if (lane->ends->to_start_ > 0) lane->ends->StartNext(lane);
  }
  void Count(int work) {
    ++turns_.all;
    turns_.idle += work == 0;
  }

  const std::string request_ = std::string(kCallBytes, 'x');
  weft_engine* server_engine_ = nullptr;
  weft_engine* client_engine_ = nullptr;
  weft_server* server_ = nullptr;
  weft_channel* channel_ = nullptr;
  weft_method method_ = 0;
  std::vector<Lane> lanes_;  // does not grow while calls have them
  uint64_t to_start_ = 0;
  uint64_t to_end_ = 0;
  Turns turns_;
};

absl::StatusOr<std::unique_ptr<CEnds>> CEnds::Open(PathKind path) {
  auto impl = std::make_unique<Impl>();
  WEFT_RETURN_IF_ERROR(impl->Open(path));
  return std::unique_ptr<CEnds>(new CEnds(std::move(impl)));
}

CEnds::CEnds(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CEnds::~CEnds() = default;
Turns CEnds::CallByCallback(uint64_t calls, uint64_t outstanding) {
  return impl_->CallByCallback(calls, outstanding);
}

}  // namespace weft::bench
