// A server of block.proto inside of a test.
//
// Threads: one. Lifetime: the device outlives it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "embed/nbdkit/block_device.h"
#include "embed/nbdkit/block_service.h"
#include "transport/buffer_pool.h"
#include "weft/engine.h"
#include "weft/server.h"

namespace weft::embed {

class BlockServer {
 public:
  explicit BlockServer(BlockDevice& device, int threads = 2,
                       const std::string& address = "127.0.0.1:0", uint64_t buffer_bytes = 8 << 20)
      : engine_(*OpenNetworkEngine({})),
        buffers_(engine_.get(), {.max_bytes = buffer_bytes}),
        service_(device, *engine_, buffers_, threads) {
    ServerOptions options;
    BlockService::LimitServer(&options);
    server_ = *Server::Create(*engine_, options);
    EXPECT_TRUE(server_->AddService(&service_).ok());
    const absl::Status listening = server_->Listen(address);
    EXPECT_TRUE(listening.ok()) << listening;
  }

  std::string address() const { return server_->address(); }
  BlockService& service() { return service_; }
  Server& server() { return *server_; }
  BufferPool& buffers() { return buffers_; }

 private:
  const std::unique_ptr<Engine> engine_;
  BufferPool buffers_;
  BlockService service_;
  std::unique_ptr<Server> server_;
};

}  // namespace weft::embed
