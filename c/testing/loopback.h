// What the tests of the C interface share: texts as bytes, statuses that must be OK, and the path
// that a connection takes.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "weft/c.h"
#include "weft/c_server.h"

namespace weft::c_test {

inline weft_bytes Bytes(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view ViewOf(weft_bytes bytes) {
  return {static_cast<const char*>(bytes.data), bytes.size};
}
inline std::string TextOf(const weft_message* message) {
  return std::string(ViewOf(weft_message_bytes(message)));
}

// What a function returned, as text: "OK", or "5: no such thing". Frees it.
inline std::string Take(weft_status* status) {
  if (status == nullptr) return "OK";
  std::string text = std::to_string(weft_status_code(status)) + ": " + weft_status_message(status);
  weft_status_free(status);
  return text;
}
inline int TakeCode(weft_status* status) {
  const int code = weft_status_code(status);
  weft_status_free(status);
  return code;
}
#define EXPECT_OK(...) EXPECT_EQ(::weft::c_test::Take(__VA_ARGS__), "OK")
#define ASSERT_OK(...) ASSERT_EQ(::weft::c_test::Take(__VA_ARGS__), "OK")

// Of options: all zero, and the size.
template <class Options>
Options Defaults() {
  Options options = {};
  options.struct_size = sizeof(options);
  return options;
}

// Half a minute: it ends only tests that fail.
inline weft_call_options Patient() {
  auto options = Defaults<weft_call_options>();
  options.timeout_us = 30'000'000;
  return options;
}

// A callback's news, for another thread.
class Signal {
 public:
  void Give(std::string news) {
    const std::lock_guard<std::mutex> lock(mutex_);
    news_ = std::move(news);
    given_ = true;
    changed_.notify_all();
  }
  std::string Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return given_; });
    given_ = false;
    return std::exchange(news_, "");
  }
  bool given() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return given_;
  }

  // As callbacks of the C interface: `arg` is the signal.
  static void OnDone(void* arg, weft_status* status) {
    static_cast<Signal*>(arg)->Give(Take(status));
  }
  static void OnStream(void* arg, int ok) { static_cast<Signal*>(arg)->Give(ok ? "ok" : "over"); }
  static void OnTask(void* arg) { static_cast<Signal*>(arg)->Give("run"); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string news_;
  bool given_ = false;
};

// A channel of the C interface over `path` alone.
class CClient {
 public:
  CClient(const std::string& address, const std::string& path, weft_engine* engine = nullptr) {
    auto options = Defaults<weft_channel_options>();
    options.paths = path.c_str();
    EXPECT_OK(weft_channel_open(engine, address.c_str(), &options, &channel_));
  }
  ~CClient() { EXPECT_OK(weft_channel_free(channel_)); }
  CClient(const CClient&) = delete;
  CClient& operator=(const CClient&) = delete;

  weft_channel* channel() const { return channel_; }

  weft_method Method(const char* name, int kind = WEFT_UNARY, int idempotency = WEFT_ONCE) const {
    weft_method method = 0;
    EXPECT_OK(weft_channel_method(channel_, "weft.c_test.Shelf", name, kind, idempotency, &method));
    return method;
  }

 private:
  weft_channel* channel_ = nullptr;
};

}  // namespace weft::c_test
