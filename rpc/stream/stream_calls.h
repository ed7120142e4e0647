// Reads and writes of a stream from any thread: in the forms that never wait, that block, and that
// have a callback.
//
// A thread that may drive the engine does so; from others they are posted. A thread that holds the
// engine already sends what it has written with the next turn, together; others at once.
//
// Threads: any that may use the stream: one at a time for its reads, and one for its writes.
// Lifetime: the stream outlives what blocks; of messages and callbacks as Stream.
#pragma once

#include <cstdint>

#include "core/function.h"

namespace google::protobuf {
class MessageLite;
}  // namespace google::protobuf

namespace weft {

class EngineCore;
class Stream;

// How an attempt to read or to write has ended.
enum class StreamResult : uint8_t {
  kDone = 1,
  kNotYet = 2,  // try again later, or ask to be called
  kOver = 3,    // there will be no more of it
};

namespace internal {

// A stream, and the engine that it belongs to.
struct StreamHandle {
  // For a thread that may drive the engine, now; another one is told kNotYet.
  StreamResult TryRead(google::protobuf::MessageLite* to) const;
  StreamResult TryWrite(const google::protobuf::MessageLite& message, bool last) const;

  // They block; in a callback of the engine, where nobody may wait, what would have to fails the
  // stream. False: as kOver.
  bool Read(google::protobuf::MessageLite* to) const;
  bool Write(const google::protobuf::MessageLite& message, bool last) const;

  // Stream's.
  void Read(google::protobuf::MessageLite* to, Function<void(bool)>&& done) const;
  void Write(const google::protobuf::MessageLite& message, bool last,
             Function<void(bool)>&& done) const;
  void WhenWritable(Function<void(bool)> done) const;
  void WritesDone() const;

  // This thread drives the engine.
  bool OnEngine() const;

  Stream* stream = nullptr;
  EngineCore* engine = nullptr;
};

}  // namespace internal
}  // namespace weft
