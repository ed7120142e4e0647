// What every command works with: the way to the server, and how the user wants it used.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/function.h"
#include "examples/kv/client/bulk_calls.h"
#include "examples/kv/client/cluster.h"
#include "examples/kv/client/one_sided_gets.h"
#include "examples/kv/kv.weft.h"
#include "examples/process/stop_signal.h"
#include "weft/channel.h"
#include "weft/engine.h"

namespace kv::client {

// Threads:   main()'s. Lifetime: what it refers to outlives it.
struct Session {
  weft::Channel& channel;
  Kv::Stub kv;
  weft::CallOptions call;
  uint32_t outstanding;
  examples::StopSignal* stop = nullptr;  // null: Ctrl-C ends the process as usual
  BulkCalls* bulk = nullptr;             // null: large values travel in messages, too
  OneSidedGets* one_sided = nullptr;     // null: records are got by calls
  Cluster* cluster = nullptr;            // null: one server; else calls go to whoever leads

  // Starts a Put. As BulkCalls::Put().
  void StartPut(uint32_t lane, const PutRequest& request, PutReply* reply,
                weft::Function<void(absl::Status)> done) const {
    if (cluster != nullptr) return cluster->Put(lane, request, reply, std::move(done));
    if (bulk != nullptr) return bulk->Put(lane, request, reply, std::move(done));
    kv.Put(request, reply, call, std::move(done));
  }

  void StartDelete(uint32_t lane, const DeleteRequest& request, DeleteReply* reply,
                   weft::Function<void(absl::Status)> done) const {
    if (cluster != nullptr) return cluster->Delete(lane, request, reply, std::move(done));
    kv.Delete(request, reply, call, std::move(done));
  }

  void StartScan(uint32_t lane, const ScanRequest& request, ScanReply* reply,
                 weft::Function<void(absl::Status)> done) const {
    if (cluster != nullptr) return cluster->Scan(lane, request, reply, std::move(done));
    kv.Scan(request, reply, call, std::move(done));
  }

  // Starts a Get, the way that the user chose. As OneSidedGets::Get(): `done` may run inside.
  void StartGet(uint32_t lane, const GetRequest& request, GetReply* reply,
                weft::Function<void(absl::Status)> done) const {
    if (one_sided != nullptr) return one_sided->Get(lane, request, reply, std::move(done));
    GetByCall(lane, request, reply, std::move(done));
  }

  void GetByCall(uint32_t lane, const GetRequest& request, GetReply* reply,
                 weft::Function<void(absl::Status)> done) const {
    if (cluster != nullptr) return cluster->Get(lane, request, reply, std::move(done));
    if (bulk != nullptr) return bulk->Get(lane, request, reply, std::move(done));
    kv.Get(request, reply, call, std::move(done));
  }

  // To the server, or to the member that leads now.
  weft::Channel& server() const { return cluster != nullptr ? cluster->leader() : channel; }
  // On the engine's clock.
  uint64_t NowNs() const { return channel.engine().clock().NowNs(); }
  bool StopRequested() const { return stop != nullptr && stop->Requested(); }
};

// "shm", "tcp"; "no path" when there is no connection.
std::string PathName(weft::Channel& channel);

// For session.one_sided; the session outlives it.
absl::StatusOr<std::unique_ptr<OneSidedGets>> OpenOneSidedGets(const Session& session);

}  // namespace kv::client
