// What every command works with: the way to the server, and how the user wants it used.
#pragma once

#include <cstdint>
#include <string>

#include "examples/kv/kv.weft.h"
#include "examples/kv/stop_signal.h"
#include "rpc/channel.h"

namespace kv::client {

// Threads:   main()'s. Lifetime: channel and stop outlive it.
struct Session {
  weft::Channel& channel;
  Kv::Stub kv;
  weft::CallOptions call;
  uint32_t outstanding;
  StopSignal* stop = nullptr;  // null: Ctrl-C ends the process as usual

  // On the engine's clock.
  uint64_t NowNs() const { return channel.engine().clock().NowNs(); }
  bool StopRequested() const { return stop != nullptr && stop->Requested(); }
};

// "shm", "tcp"; "no path" when there is no connection.
std::string PathName(weft::Channel& channel);

}  // namespace kv::client
