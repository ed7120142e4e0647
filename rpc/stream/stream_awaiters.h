// A read and a write of a stream that coroutines await; each gives what the blocking form returns.
// What need not wait is done inside the await.
//
// Threads, Lifetime: as the forms with a callback (stream_calls.h).
#pragma once

#include <coroutine>

#include "rpc/coroutine/await.h"
#include "rpc/stream/stream_calls.h"

namespace weft::internal {

class [[nodiscard]] ReadAwaiter {
 public:
  ReadAwaiter(const StreamHandle& stream, google::protobuf::MessageLite* to)
      : stream_(stream), to_(to) {}

  bool await_ready() {
    result_ = stream_.TryRead(to_);
    return result_ != StreamResult::kNotYet;
  }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> coroutine) {
    resumption_.Set(coroutine);
    stream_.Read(to_, [this](bool read) {
      result_ = read ? StreamResult::kDone : StreamResult::kOver;
      resumption_();
    });
    return resumption_.Suspend(stream_.OnEngine());
  }
  bool await_resume() const { return result_ == StreamResult::kDone; }

 private:
  const StreamHandle stream_;
  google::protobuf::MessageLite* const to_;
  StreamResult result_ = StreamResult::kNotYet;
  Resumption resumption_;
};

class [[nodiscard]] WriteAwaiter {
 public:
  WriteAwaiter(const StreamHandle& stream, const google::protobuf::MessageLite& message)
      : stream_(stream), message_(message) {}

  bool await_ready() {
    result_ = stream_.TryWrite(message_, /*last=*/false);
    return result_ != StreamResult::kNotYet;
  }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> coroutine) {
    resumption_.Set(coroutine);
    stream_.Write(message_, /*last=*/false, [this](bool written) {
      result_ = written ? StreamResult::kDone : StreamResult::kOver;
      resumption_();
    });
    return resumption_.Suspend(stream_.OnEngine());
  }
  bool await_resume() const { return result_ == StreamResult::kDone; }

 private:
  const StreamHandle stream_;
  const google::protobuf::MessageLite& message_;
  StreamResult result_ = StreamResult::kNotYet;
  Resumption resumption_;
};

}  // namespace weft::internal
