// A stream in the hands of its caller.
//
//   ClientWriter<W>           of a method with a stream of requests: writes; one reply
//   ClientReader<R>           of one with a stream of replies: one request; reads
//   ClientReaderWriter<W, R>  of one with both
//
//   weft::ClientReaderWriter<Word, Word> chat = stub.Chat();
//   chat.Write(word);
//   chat.WritesDone();
//   while (chat.Read(&word)) Use(word);
//   absl::Status status = chat.Finish();
//
// In four forms:
//   TryRead(), TryWrite()  never wait: kNotYet says that they would have to. On the engine's thread
//                          or one that may drive it; other threads always hear kNotYet.
//   blocking               any thread, not inside a callback of the engine: what would have to wait
//                          there fails the stream.
//   with a callback        on the engine's thread, once; from any thread, which never waits for it.
//   CoRead(), CoWrite()    for coroutines (weft/coroutine.h): a bool, as the blocking ones.
// At most one read and one write wait at a time.
//
// What a reader does not read stays in the process, up to its window (ChannelOptions::
// stream_window_...), and then at the server: nobody else on the connection waits for it.
//
// CallOptions: timeout_us is for the whole stream, and so is what bulk lends. Of a context Cancel()
// and the metadata of the end are as for calls.
//
// Threads: any, one at a time for reads, and one for writes.
// Lifetime: goes before its channel. One that goes before its end cancels the stream. Messages stay
//   untouched and alive until their callback, the reply of a ClientWriter until Finish() has ended
//   (a stream that is dropped without it never touches its reply). So does a context.
// Errors: false, or kOver: there are no more messages, or the stream is over; Finish() says why,
//   with the errors of calls (weft/channel.h).
// Invariants: it ends exactly once. Messages come in the order in which they were written.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "core/function.h"
#include "rpc/stream/stream_awaiters.h"
#include "rpc/stream/stream_calls.h"

namespace google::protobuf {
class MessageLite;
}  // namespace google::protobuf

namespace weft {

class Channel;
class ClientStream;
struct CallOptions;

namespace internal {

// For generated code, on any thread: begins a stream on the channel. `request`: the only one, or
// null. `reply`: for the only one, or null; it stays until the end. The stream has a handle, which
// ends with ReleaseStream().
ClientStream* StartStream(Channel& channel, uint32_t method,
                          const google::protobuf::MessageLite* request,
                          google::protobuf::MessageLite* reply, const CallOptions& options);
void ReleaseStream(ClientStream* stream);
StreamHandle HandleOf(ClientStream& stream);
// ClientStream's, on any thread.
void CancelStream(ClientStream& stream);
void FinishStream(ClientStream& stream, Function<void(absl::Status)> done);
absl::Status FinishStream(ClientStream& stream);

}  // namespace internal

// W: what the caller writes, R: what it reads; void: nothing.
template <class W, class R>
class ClientReaderWriter {
 public:
  static constexpr bool kReads = !std::is_void_v<R>;
  static constexpr bool kWrites = !std::is_void_v<W>;

  // For generated code: of internal::StartStream().
  explicit ClientReaderWriter(ClientStream* stream)
      : stream_(stream), handle_(internal::HandleOf(*stream)) {}

  ClientReaderWriter(ClientReaderWriter&& other) noexcept
      : stream_(std::exchange(other.stream_, nullptr)), handle_(other.handle_) {}
  ClientReaderWriter& operator=(ClientReaderWriter&& other) noexcept {
    if (this != &other) {
      Drop();
      stream_ = std::exchange(other.stream_, nullptr);
      handle_ = other.handle_;
    }
    return *this;
  }
  ~ClientReaderWriter() { Drop(); }

  // REQUIRES (all of these): not moved from.

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
  // The same as Write() and WritesDone(), in one.
  template <std::same_as<W> M>
  bool WriteLast(const M& message) {
    return handle_.Write(message, /*last=*/true);
  }
  // Nothing will be written any more: the handler's reads end.
  void WritesDone() requires kWrites { handle_.WritesDone(); }

  // --- the end ----------------------------------------------------------------------------------

  // How the stream has ended, when it has. Nothing is written any more, and what was not read is
  // dropped; the server is not told to stop: that is Cancel().
  // FAILED_PRECONDITION: inside a callback of the engine.
  absl::Status Finish() { return internal::FinishStream(*stream_); }
  // The same for `done`. REQUIRES: once, and not the form above.
  void Finish(Function<void(absl::Status)> done) {
    internal::FinishStream(*stream_, std::move(done));
  }
  // The same for coroutines: gives the status.
  auto CoFinish() {
    return Await<absl::Status>([stream = stream_](Function<void(absl::Status)> done) {
      internal::FinishStream(*stream, std::move(done));
    });
  }
  // Ends it with CANCELLED, if it has not ended, and tells the server.
  void Cancel() { internal::CancelStream(*stream_); }

 private:
  void Drop() {
    if (stream_ != nullptr) internal::ReleaseStream(std::exchange(stream_, nullptr));
  }

  ClientStream* stream_;  // null: moved from
  internal::StreamHandle handle_;
};

template <class R>
using ClientReader = ClientReaderWriter<void, R>;
template <class W>
using ClientWriter = ClientReaderWriter<W, void>;

}  // namespace weft
