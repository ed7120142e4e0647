// dqlite, unmodified, with its replication over Weft: a library to preload.
//
//   LD_PRELOAD=.../libweft_dqlite.so dqlite-demo --api ... --db 127.0.0.1:9001
//
// It takes the place of libraft's raft_uv_init() and raft_uv_close(), which dqlite calls for each
// node, and puts Weft's network half (embed/raft/raft_network.h) into the raft_io that libraft has
// made, and before all of it what mends libraft's defects (embed/raft/raft_repair.h). The disk
// half, ticks, and the connections of dqlite's clients stay what they were.
//
// A node's Weft server listens at the node's own host, and its port plus WEFT_DQLITE_PORT_OFFSET
// (10000): so all nodes of a cluster have the same offset. WEFT_DQLITE=off leaves dqlite alone.
// There is no TLS in this library: a node whose host is not a loopback address is refused unless
// WEFT_DQLITE_PLAIN=1 says that the network is one's own.
// WEFT_DQLITE_SPIN_US (0): how long the loop polls before it sleeps. WEFT_PATHS, WEFT_LOG and the
// rest of Weft's variables hold. Weft's warnings go to the program's stderr, though others wrote
// it: who has preloaded this library should hear them, and dqlite does not know of them. (They are
// few, and hardly ever waited for: core/log.h. WEFT_LOG=off has none.)
//
// Threads: raft_uv_init() on that of dqlite's caller, everything else on the node's loop; but
//   raft_uv_close() of a node that could not be made is on its caller's, too.
// Lifetime: a Node's from raft_uv_init() to raft_uv_close(). dqlite calls the latter inside the
//   callback of raft_close(), which comes by way of OnClosed(): when the network half has ended,
//   the disk half has closed, and the engine is not in the loop any more. libraft looks at nothing
//   of this after it; its disk half may say once more that it is closed, which RaftNetwork keeps
//   from all above it, and nobody hears when that is gone.
// Errors: what is wrong with a variable goes to stderr and makes raft_uv_init() fail: a cluster of
//   which one half speaks Weft would not meet.
#include <dlfcn.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "embed/raft/libraft.h"
#include "embed/raft/raft_io_table.h"
#include "embed/raft/raft_network.h"
#include "embed/raft/raft_repair.h"
#include "embed/raft/uv_engine.h"
#include "weft/engine.h"

struct raft_uv_transport;

namespace {

using weft::embed::RaftIoTable;
using weft::embed::RaftNetwork;
using weft::embed::RaftRepair;
using weft::embed::UvEngine;

constexpr uint32_t kDefaultPortOffset = 10'000;
constexpr uint32_t kMostPort = 65'535;

// One of dqlite's nodes in this process.
struct Node {
  uv_loop_s* loop = nullptr;
  std::unique_ptr<weft::Engine> engine;
  std::unique_ptr<UvEngine> driver;
  std::unique_ptr<RaftNetwork> network;
  // The network half's, below ours.
  int (*init)(raft_io*, raft_id, const char*) = nullptr;
  int (*start)(raft_io*, unsigned, raft_io_tick_cb, raft_io_recv_cb) = nullptr;
  void (*close)(raft_io*, raft_io_close_cb) = nullptr;
  raft_io_tick_cb tick = nullptr;
  raft_io_close_cb closed = nullptr;
  std::optional<RaftRepair> repair;  // above ours
};

constinit RaftIoTable<Node> nodes;  // each is deleted by Detach()

// The variable as a number of 0..most, or `otherwise`; false: it is none.
bool ReadVariable(const char* name, uint32_t most, uint32_t otherwise, uint32_t* value) {
  *value = otherwise;
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return true;
  const char* const end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, *value);
  if (error == std::errc() && rest == end && *value <= most) return true;
  std::cerr << name << "=" << text << ": must be a number of 0 to " << most << std::endl;
  return false;
}

// "10.0.0.7:9001" -> "10.0.0.7:19001". What has no port stays, and cannot be listened at.
std::string WeftAddress(std::string_view address, uint32_t offset) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == std::string_view::npos) return std::string(address);
  const char* const end = address.data() + address.size();
  const auto [rest, error] = std::from_chars(address.data() + colon + 1, end, port);
  if (error != std::errc() || rest != end) return std::string(address);
  return std::string(address.substr(0, colon + 1)) + std::to_string(port + offset);
}

// Of a numeric host, as dqlite has them.
bool IsLoopback(std::string_view address) {
  return address.substr(0, 4) == "127." || address.substr(0, 5) == "[::1]";
}

int Init(raft_io* io, raft_id id, const char* address) {
  const char* const plain = std::getenv("WEFT_DQLITE_PLAIN");
  if (!IsLoopback(address) && (plain == nullptr || std::string_view(plain) != "1")) {
    std::cerr << "dqlite over Weft: " << address
              << " is not of this host alone, and what the nodes "
              << "say would go in the clear; WEFT_DQLITE_PLAIN=1 permits it" << std::endl;
    return RAFT_UNAUTHORIZED;
  }
  return nodes.Find(io)->init(io, id, address);
}

// libuv's timer, and so outside of the engine's callbacks.
void Tick(raft_io* io) {
  Node& node = *nodes.Find(io);
  node.network->Tidy();
  node.tick(io);
}

int Start(raft_io* io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb receive) {
  Node& node = *nodes.Find(io);
  node.tick = tick;
  uint32_t spin_us = 0;
  if (!ReadVariable("WEFT_DQLITE_SPIN_US", 1'000'000, 0, &spin_us)) return RAFT_INVALID;
  auto driver = UvEngine::Start(node.loop, *node.engine, spin_us);
  if (!driver.ok()) {
    std::cerr << driver.status() << std::endl;
    return RAFT_IOERR;
  }
  node.driver = *std::move(driver);
  const int code = node.start(io, msecs, Tick, receive);
  if (code != 0) std::cerr << "Weft's half of raft_io did not start: " << io->errmsg << std::endl;
  return code;
}

// The loop ends when nothing is in it any more: the engine's handles go before libraft hears, which
// ends the node.
void OnClosed(raft_io* io) {
  Node& node = *nodes.Find(io);
  if (node.driver == nullptr) return node.closed(io);
  node.driver->Stop([closed = node.closed, io] { closed(io); });
}

void Close(raft_io* io, raft_io_close_cb callback) {
  Node& node = *nodes.Find(io);
  node.closed = callback;
  node.close(io, OnClosed);
}

absl::Status Attach(raft_io* io, uv_loop_s* loop, uint32_t offset) {
  auto engine =
      weft::OpenNetworkEngine({.drive = weft::EngineOptions::Drive::kExternal, .name = "dqlite"});
  if (!engine.ok()) return engine.status();
  weft::embed::RaftNetworkOptions options;
  options.group = "dqlite";
  options.address_of = [offset](std::string_view address) { return WeftAddress(address, offset); };
  auto network = RaftNetwork::Attach(io, **engine, options);
  if (!network.ok()) return network.status();
  auto node = std::make_unique<Node>();
  node->loop = loop;
  node->engine = *std::move(engine);
  node->network = *std::move(network);
  node->init = std::exchange(io->init, Init);
  node->start = std::exchange(io->start, Start);
  node->close = std::exchange(io->close, Close);
  node->repair.emplace(io);
  nodes.Add(io, node.release());
  return absl::OkStatus();
}

void Detach(raft_io* io, Node* node) {
  node->repair.reset();
  io->init = node->init;
  io->start = node->start;
  io->close = node->close;
  // Whoever is here drives what the channels still have to do.
  node->engine->Adopt();
  node->network.reset();
  node->driver.reset();
  nodes.Remove(io);
  delete node;
}

template <class F>
F* Next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int raft_uv_init(raft_io* io, uv_loop_s* loop,
                                                        const char* dir,
                                                        raft_uv_transport* transport) {
  using Init = int(raft_io*, uv_loop_s*, const char*, raft_uv_transport*);
  static Init* const init = Next<Init>("raft_uv_init");
  const int code = init(io, loop, dir, transport);
  const char* const use = std::getenv("WEFT_DQLITE");
  if (code != 0 || (use != nullptr && std::string_view(use) == "off")) return code;
  uint32_t offset = 0;
  if (!ReadVariable("WEFT_DQLITE_PORT_OFFSET", kMostPort, kDefaultPortOffset, &offset)) {
    return RAFT_INVALID;
  }
  if (const absl::Status attached = Attach(io, loop, offset); !attached.ok()) {
    std::cerr << "dqlite over Weft: " << attached << std::endl;
    return RAFT_INVALID;
  }
  return 0;
}

__attribute__((visibility("default"))) void raft_uv_close(raft_io* io) {
  using CloseIo = void(raft_io*);
  static CloseIo* const close = Next<CloseIo>("raft_uv_close");
  if (Node* const node = nodes.Find(io); node != nullptr) Detach(io, node);
  close(io);
}

}  // extern "C"
