// weft_channel, weft_message and weft_context.
//
// Threads: as Channel and ClientContext; counts from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "c/bytes_message.h"
#include "c/engine.h"
#include "weft/c.h"
#include "weft/channel.h"
#include "weft/client_context.h"
#include "weft/service.h"

struct weft_channel {
  weft::c::Use of_engine;                  // of the program's
  weft_engine own_engine;                  // unless it is on one of the program's
  weft_engine* engine = nullptr;           // one of the two
  std::unique_ptr<weft::Channel> channel;  // goes before them
  std::atomic<uint32_t> uses{0};           // streams, buffers, remote memory
  std::atomic<uint32_t> methods{0};        // its numbers are below it
};

struct weft_message {
  weft::c::BytesMessage bytes;
};

struct weft_context {
  std::shared_ptr<weft::ClientContext> context;  // calls have it as well
};

namespace weft::c {

// MethodTable's: what Channel::Bind() returns where there are more.
inline constexpr uint32_t kMostBound = 2048;

// Entry `index` of metadata, as the functions of weft/c*.h give it.
int EntryOf(const Metadata& metadata, size_t index, weft_bytes* key, weft_bytes* value);

// CallOptions of a program's, and who keeps what they point to.
struct ReadCallOptions {
  CallOptions options;
  std::shared_ptr<ClientContext> context;
};

absl::Status ReadOptionsOfCall(const weft_call_options* given, ReadCallOptions* read);

// What a program calls or opens a stream with; `function` is for the error's text.
absl::Status CheckCall(std::string_view function, const weft_channel& channel, weft_method method,
                       bool as_stream, weft_bytes request, const weft_message* reply);

}  // namespace weft::c
