// Frames of streams as a raw peer sends them (raw_peer.h), and a service whose handlers are a
// test's.
//
// Threads: the test's.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "rpc/testing/raw_peer.h"
#include "rpc/testing/stream_service.h"
#include "rpc/wire/stream_frame.h"

namespace weft::test {

inline constexpr uint16_t kTalk = 7;  // behind the methods of Probe
inline constexpr uint16_t kSum = 8;
inline constexpr uint16_t kCount = 9;
inline constexpr uint16_t kPlain = 11;

inline Bytes Open(CallId id, uint16_t method, const std::string& extras = "", bool waits = false,
                  uint32_t remaining_us = 0) {
  Bytes frame(OpenFrameBytes(/*windows=*/0, extras.size()));
  EncodeOpen({id, method, remaining_us, waits, AsBytes(extras)}, frame.data());
  return frame;
}
inline Bytes Message(CallId id, uint32_t number, const std::string& body = "", uint16_t flags = 0) {
  Bytes frame(kCallHeaderBytes + body.size());
  EncodeData(id, flags, number, /*to_opener=*/false, frame.data());
  std::memcpy(frame.data() + kCallHeaderBytes, body.data(), body.size());
  return frame;
}
inline Bytes Last(CallId id, uint32_t messages) {
  return Message(id, messages, "", kLastMessage | kNoMessage);
}
inline Bytes Credit(CallId id, uint16_t messages, uint32_t bytes) {
  Bytes frame(kCallHeaderBytes);
  EncodeCredit({id, messages, bytes}, /*to_opener=*/false, frame.data());
  return frame;
}
// Data or credit as a server sends it; other frames as they are.
inline Bytes ToOpener(Bytes frame) {
  const uint16_t kind = CallFrameKindOf(frame);
  const auto low = static_cast<StreamFrameKind>(kind & 0xFF);
  if (low == StreamFrameKind::kData || low == StreamFrameKind::kCredit) {
    StoreLe16(frame.data() + 10, kind ^ kToOpenerBit);
  }
  return frame;
}
inline Bytes End(CallId id, uint16_t status, uint32_t messages, const std::string& text = "",
                 const std::string& extras = "") {
  Bytes frame(EndFrameBytes(extras.size(), text.size()));
  EncodeEnd({id, status, false, messages, AsBytes(extras), AsBytes(text)}, frame.data());
  return frame;
}
inline Bytes CancelOf(CallId id) {
  Bytes frame(kCallHeaderBytes);
  EncodeStreamCancel(id, frame.data());
  return frame;
}
inline std::string Encoded(uint64_t number, size_t bytes) {
  return MakeData(number, bytes).SerializeAsString();
}

// All in one batch: they arrive in one turn.
inline void SendTogether(RawPeer& peer, const std::vector<Bytes>& frames) {
  for (const Bytes& frame : frames) {
    absl::StatusOr<std::byte*> space = peer.connection->Reserve(frame.size());
    ASSERT_TRUE(space.ok()) << space.status();
    std::memcpy(*space, frame.data(), frame.size());
    peer.connection->Commit(frame.size());
  }
  peer.connection->Flush();
}

// A service whose handlers are the test's.
class OwnService final : public Streams::Service {
 public:
  using Served = ServerReaderWriter<Data, Data>;
  void StartTalk(Served stream) override { on_talk(std::move(stream)); }
  std::function<void(Served)> on_talk;
};

}  // namespace weft::test
