// A server of file.proto inside of a test, on a folder of its own.
//
// Threads: one.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "embed/rocksdb/file_service.h"
#include "embed/rocksdb/lent_files.h"
#include "embed/rocksdb/served_folder.h"
#include "transport/buffer_pool.h"
#include "weft/engine.h"
#include "weft/server.h"

namespace weft::embed {

// Goes with its files.
class TestFolder {
 public:
  explicit TestFolder(const std::string& name)
      : path_(testing::TempDir() + "/" + name + "." + std::to_string(::getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string Content(const std::string& name) const {
    std::ifstream in(file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Put(const std::string& name, const std::string& content) const {
    std::ofstream(file(name), std::ios::binary | std::ios::trunc) << content;
  }

 private:
  const std::string path_;
};

class FileServer {
 public:
  struct Options {
    bool read_only = false;
    uint64_t memory_bytes = 64 << 20;  // 0: nothing is lent
    uint64_t lock_grace_us = 0;
    uint64_t max_open_files = 0;
    std::string address = "127.0.0.1:0";
  };

  FileServer(const std::string& path, const Options& options)
      : folder_(*ServedFolder::Open(path, options.read_only)),
        engine_(*OpenNetworkEngine({})),
        buffers_(engine_.get(), {.max_bytes = 16 << 20}),
        lent_(*engine_, options.memory_bytes),
        service_(*folder_, options.memory_bytes > 0 ? &lent_ : nullptr, *engine_, buffers_,
                 {.threads = 2,
                  .max_open_files = options.max_open_files,
                  .lock_grace_us = options.lock_grace_us}) {
    ServerOptions server_options;
    FileService::LimitServer(&server_options);
    server_ = *Server::Create(*engine_, server_options);
    EXPECT_TRUE(server_->AddService(&service_).ok());
    const absl::Status listening = server_->Listen(options.address);
    EXPECT_TRUE(listening.ok()) << listening;
  }
  explicit FileServer(const std::string& path) : FileServer(path, Options()) {}

  std::string address() const { return server_->address(); }
  LentFiles& lent() { return lent_; }
  uint64_t requests() const { return server_->stats().requests; }

 private:
  const std::unique_ptr<ServedFolder> folder_;
  const std::unique_ptr<Engine> engine_;
  BufferPool buffers_;
  LentFiles lent_;
  FileService service_;
  std::unique_ptr<Server> server_;
};

}  // namespace weft::embed
