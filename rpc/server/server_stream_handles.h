// A stream in the hands of its handler: what it may read, what it may write, and the right and duty
// to finish it.
//
//   ServerReader<R>           of a method with a stream of requests: reads, and one reply
//   ServerWriter<W>           of one with a stream of replies: one request, and writes
//   ServerReaderWriter<W, R>  of one with both
//
//   absl::Status Chat(weft::ServerContext&,
//                     weft::ServerReaderWriter<Word, Word>& stream) override {
//     Word word;
//     while (stream.Read(&word)) stream.Write(word);
//     return absl::OkStatus();
//   }
//
// In four forms:
//   TryRead(), TryWrite()  never wait: kNotYet says that they would have to. On the engine's thread
//                          or one that may drive it; other threads always hear kNotYet.
//   blocking               for handlers on an executor. In a callback of the engine what would have
//                          to wait fails the stream.
//   with a callback        on the engine's thread, once; from any thread, which never waits for it.
//   CoRead(), CoWrite()    for coroutines (weft/coroutine.h): a bool, as the blocking ones.
// At most one read and one write wait at a time.
//
// A client that does not read stops the writer by its window (ChannelOptions::stream_window_...).
//
// Threads: any, one at a time for reads, and one for writes. Of Finish() as UnaryCall's.
// Lifetime: until Finish(), also when the stream is cancelled meanwhile: reads then end, and writes
//   say that it is over. Messages stay untouched and alive until their callback; request, reply and
//   context until Finish(). Reads and writes that wait end with false when it is finished.
// Errors: false, or kOver: there are no more messages of the client, or the stream is over. If that
//   is not because of the client's WritesDone(), context().cancelled() is true before a read says
//   so: whoever commits what has come looks at it first. A message that cannot be decoded ends it:
//   its client hears why, whatever the handler finishes with. One that is dropped without Finish()
//   ends with INTERNAL, naming the method.
// Invariants: finished exactly once. The client has all that was written when it hears of the end.
// REQUIRES: as UnaryCall.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "core/check.h"
#include "core/function.h"
#include "rpc/server/unary_call.h"
#include "rpc/stream/stream_awaiters.h"
#include "rpc/stream/stream_calls.h"

namespace weft {
namespace internal {

// Without a stream: the client has called the method as if it were unary.
StreamHandle StreamOf(HandledCall& call);

}  // namespace internal

// W: what the handler writes, R: what it reads; void: nothing.
template <class W, class R>
class ServerReaderWriter {
 public:
  static constexpr bool kReads = !std::is_void_v<R>;
  static constexpr bool kWrites = !std::is_void_v<W>;

  // For generated code. Takes over the duty to finish `call`, which is a stream's.
  explicit ServerReaderWriter(internal::HandledCall& call)
      : call_(&call), handle_(internal::StreamOf(call)) {}

  ServerReaderWriter(ServerReaderWriter&& other) noexcept
      : call_(std::exchange(other.call_, nullptr)), handle_(other.handle_) {}
  ServerReaderWriter& operator=(ServerReaderWriter&& other) noexcept {
    if (this != &other) {
      Drop();
      call_ = std::exchange(other.call_, nullptr);
      handle_ = other.handle_;
    }
    return *this;
  }
  ~ServerReaderWriter() { Drop(); }

  // REQUIRES (all of these): not finished and not moved from.
  ServerContext& context() const { return *call_; }

  // --- reading ----------------------------------------------------------------------------------

  StreamResult TryRead(R* to) requires kReads { return handle_.TryRead(to); }
  // False: there is no message any more.
  bool Read(R* to) requires kReads { return handle_.Read(to); }
  void Read(R* to, Function<void(bool)> done) requires kReads { handle_.Read(to, std::move(done)); }
  internal::ReadAwaiter CoRead(R* to) requires kReads { return {handle_, to}; }

  // --- writing ----------------------------------------------------------------------------------

  template <std::same_as<W> M>
  StreamResult TryWrite(const M& message) {
    return handle_.TryWrite(message, /*last=*/false);
  }
  // When what TryWrite() has refused last may pass; false: the stream is over.
  void WhenWritable(Function<void(bool)> done) requires kWrites {
    handle_.WhenWritable(std::move(done));
  }
  // False: the stream is over, and it was not sent.
  template <std::same_as<W> M>
  bool Write(const M& message) {
    return handle_.Write(message, /*last=*/false);
  }
  template <std::same_as<W> M>
  void Write(const M& message, Function<void(bool)> done) {
    handle_.Write(message, /*last=*/false, std::move(done));
  }
  template <std::same_as<W> M>
  internal::WriteAwaiter CoWrite(const M& message) {
    return {handle_, message};
  }

  // --- the end ----------------------------------------------------------------------------------

  // Ends the stream, behind all that was written. This handle does not touch it any more.
  void Finish(absl::Status status) {
    WEFT_CHECK(call_ != nullptr);  // User: one Finish()
    std::exchange(call_, nullptr)->Finish(std::move(status));
  }

 private:
  void Drop() {
    if (call_ != nullptr) std::exchange(call_, nullptr)->FinishDropped();
  }

  internal::HandledCall* call_;  // null: moved from, or finished
  internal::StreamHandle handle_;
};

template <class R>
using ServerReader = ServerReaderWriter<void, R>;
template <class W>
using ServerWriter = ServerReaderWriter<W, void>;

}  // namespace weft
