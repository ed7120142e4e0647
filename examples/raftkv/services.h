// What clients (kv.proto) and operators (raftkv.proto) call, on a Replica and its StateMachine.
//
// Threads:   handlers run on the server's engine, the replica's.
// Lifetime:  replica and state outlive the services; these outlive the server.
// Errors:    those of kv.proto and of the replica. INVALID_ARGUMENT for what a replicated server
//            does not have: values beside the message (weft.Bulk). UNIMPLEMENTED: OpenIndex.
// Invariant: what no state would take is refused before it goes into the log, by the server that is
//            asked: it costs no other member anything.
#pragma once

#include <memory>

#include "embed/raft/raft_network.h"
#include "examples/kv/kv.weft.h"
#include "examples/raftkv/raftkv.weft.h"
#include "examples/raftkv/replica.h"
#include "examples/raftkv/state_machine.h"
#include "weft/server.h"
#include "weft/service.h"

namespace raftkv {

class KvService final : public kv::Kv::Service {
 public:
  KvService(Replica* replica, StateMachine* state) : replica_(*replica), state_(*state) {}

  // What one request may have: a record of the largest kind. Without it one request of 64 MiB, of
  // 33 million empty fields, took 3 GiB to decode.
  static void LimitServer(const kv::StoreLimits& limits, weft::ServerOptions* options);

  void StartPut(weft::UnaryCall<kv::PutRequest, kv::PutReply> call) override;
  void StartDelete(weft::UnaryCall<kv::DeleteRequest, kv::DeleteReply> call) override;
  void StartGet(weft::UnaryCall<kv::GetRequest, kv::GetReply> call) override;
  void StartScan(weft::UnaryCall<kv::ScanRequest, kv::ScanReply> call) override;
  // Of the member that is asked.
  absl::Status Stats(weft::ServerContext& context, const kv::StatsRequest& request,
                     kv::StatsReply* reply) override;

 private:
  Replica& replica_;
  StateMachine& state_;
};

class ClusterService final : public Cluster::Service {
 public:
  // `network`: null, where members do not speak by Weft.
  ClusterService(Replica* replica, weft::embed::RaftNetwork* network)
      : replica_(*replica), network_(network) {}

  void StartOpenSessions(weft::UnaryCall<OpenSessionsRequest, OpenSessionsReply> call) override;
  absl::Status Status(weft::ServerContext& context, const StatusRequest& request,
                      StatusReply* reply) override;
  void StartChange(weft::UnaryCall<ChangeRequest, ChangeReply> call) override;
  void StartMeasure(weft::UnaryCall<MeasureRequest, MeasureReply> call) override;
  void StartTransfer(weft::UnaryCall<TransferRequest, TransferReply> call) override;

 private:
  struct Measuring;

  void ProposeMeasured(const std::shared_ptr<Measuring>& measuring);

  Replica& replica_;
  weft::embed::RaftNetwork* const network_;
  std::weak_ptr<Measuring> measuring_;  // its commands have it
};

}  // namespace raftkv
