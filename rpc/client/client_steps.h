// The way of a call out of the client when nothing stands in its way: steps that Channel::Call()
// has in line, and that calls from the queue take too.
//
// Threads: the engine's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "core/inline.h"
#include "core/trace.h"
#include "rpc/client/client_calls.h"

namespace weft {

// A request is a message, or bytes: a struct of fixed layout, or what was serialized aside. Size
// first, then exactly that many bytes.
inline size_t RequestBytes(const google::protobuf::MessageLite& request) {
  return request.ByteSizeLong();
}
inline size_t RequestBytes(std::string_view encoded) { return encoded.size(); }
inline void EncodeRequestTo(const google::protobuf::MessageLite& request, std::byte* to) {
  request.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(to));
}
inline void EncodeRequestTo(std::string_view encoded, std::byte* to) {
  std::memcpy(to, encoded.data(), encoded.size());
}
// The same of a call that has not left at once.
inline size_t RequestBytes(const ClientCall& call) {
  return call.request != nullptr ? RequestBytes(*call.request) : RequestBytes(call.encoded);
}
inline void EncodeRequestTo(const ClientCall& call, std::byte* to) {
  if (call.request != nullptr) return EncodeRequestTo(*call.request, to);
  EncodeRequestTo(call.encoded, to);
}

// More than an hour and eleven minutes does not fit: the client alone watches such a deadline.
constexpr uint32_t ToRemainingUs(uint64_t us) {
  return us <= std::numeric_limits<uint32_t>::max() ? static_cast<uint32_t>(us) : 0;
}
// The time that the server has for a call; 0: no deadline that it could watch.
uint32_t TimeLeftUs(const ClientCall& call, Clock& clock);
inline uint32_t RemainingUs(const ClientCall& call, Clock& clock) {
  return call.deadline_ns == kNever ? 0 : TimeLeftUs(call, clock);
}

// False: it is too large for the server, or there is no slot or no credit. For the latter
// OnWritable() follows; without a connection OnClosed() does.
template <class Request>
WEFT_INLINE bool ClientCalls::SendRequest(ClientCall& call, uint16_t method,
                                          const Request& request) {
  const size_t bytes = RequestBytes(request);
  if (bytes > max_request_bytes_) [[unlikely]]
    return false;
  SlabHandle handle;
  SentCalls::Slot* const slot = sent_.Take(&handle);
  if (slot == nullptr) [[unlikely]]
    return false;
  const MessageSpace frame = connection_->Append(kCallHeaderBytes + bytes);
  if (frame.data == nullptr) [[unlikely]] {
    sent_.GiveBack(handle);
    return false;
  }
  EncodeRequest({{handle.slot, handle.generation}, method, RemainingUs(call, engine_.clock())},
                frame.data);
  EncodeRequestTo(request, frame.data + kCallHeaderBytes);
  Trace(TracePoint::kWritten);
  SentCalls::Fill(slot, handle, call, frame.number);
  return true;
}

template <class Request>
WEFT_INLINE bool ClientCalls::SendAtOnce(ClientCall& call, uint32_t method,
                                         const Request& request) {
  const uint16_t number = methods_.Find(method);
  if (!MaySend() || number == MethodTable::kUnknown || !SendRequest(call, number, request))
      [[unlikely]]
    return false;
  ++stats_.calls_started;
  return true;
}

template <class Request>
WEFT_INLINE bool ClientCalls::SendOneWayAtOnce(uint32_t method, uint64_t timeout_us,
                                               const Request& request) {
  const uint16_t number = methods_.Find(method);
  const size_t bytes = RequestBytes(request);
  if (!MaySend() || number == MethodTable::kUnknown || bytes > max_request_bytes_) [[unlikely]]
    return false;
  const MessageSpace frame = connection_->Append(kCallHeaderBytes + bytes);
  if (frame.data == nullptr) [[unlikely]]
    return false;
  EncodeOneWay(number, ToRemainingUs(timeout_us), frame.data);
  EncodeRequestTo(request, frame.data + kCallHeaderBytes);
  Trace(TracePoint::kWritten);
  ++stats_.calls_started;
  ++stats_.calls_ok;
  return true;
}

}  // namespace weft
