// weft_server, weft_service and weft_server_call.
//
// Threads: as Server; a call as UnaryCall.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "c/bytes_message.h"
#include "c/engine.h"
#include "c/stream.h"
#include "core/function.h"
#include "weft/authorization.h"
#include "weft/c_server.h"
#include "weft/generated.h"
#include "weft/server.h"
#include "weft/service.h"

// A service whose methods take and give bytes.
struct weft_service final : public weft::Service {
  struct Handler {
    weft_handler run;
    void* arg;
  };

  explicit weft_service(std::string_view full_name) : name(full_name) {}

  const weft::ServiceDescriptor& weft_descriptor() const override { return descriptor; }

  const std::string name;
  std::vector<std::unique_ptr<const std::string>> method_names;  // as methods, and handlers
  std::vector<weft::MethodDescriptor> methods;
  std::vector<Handler> handlers;
  weft::ServiceDescriptor descriptor;  // of all that, when a server has taken it
};

// The reply of a call, which is its handle as well: it lies on the call's arena, and is used again
// for the next call of the method there.
struct weft_server_call final : public weft::c::BytesMessage {
  ~weft_server_call() override;

  weft::internal::HandledCall* call = nullptr;  // null: finished
  weft_stream* stream = nullptr;                // null: not asked for
};

namespace weft::c {

// A program's.
class HostExecutor final : public Executor {
 public:
  explicit HostExecutor(const weft_executor& host) : host_(host) {}
  bool Run(Function<void()> task) override;

 private:
  const weft_executor host_;
};

}  // namespace weft::c

struct weft_server {
  weft::c::Use of_engine;
  weft_engine own_engine;         // unless it is on one of the program's
  weft_engine* engine = nullptr;  // one of the two
  std::unique_ptr<weft::PolicyFile> policy;
  std::optional<weft::c::HostExecutor> executor;
  std::vector<std::unique_ptr<weft_service>> services;
  std::unique_ptr<weft::Server> server;  // goes before all of that
  std::string address;                   // the first one
  std::atomic<uint32_t> uses{0};         // exports
};
