// How the records of a kv_server pass to the process that follows it (kv_server --handover): in a
// file, which the one process writes when its last call has ended, and for which the other one
// waits. Calls that come to it meanwhile wait with it, so each sees all that was written before:
// no record is in two processes at a time.
//
//   KeptRecords   the file, locked (flock) for as long as a process has the records
//   WaitingKv     the service, whose calls wait until Open()
//
// A process that is killed has written nothing: its records are gone, as without an upgrade, and
// the next one starts empty.
//
// Threads:   KeptRecords: one at a time. WaitingKv: the server's engine.
// Lifetime:  the service outlives the WaitingKv, and that one the server.
// Errors:    from the system's errno, with the path. DATA_LOSS: the file is none of kv_server's.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/function.h"
#include "examples/kv/kv.pb.h"
#include "examples/kv/kv.weft.h"
#include "examples/kv/kv_service.h"
#include "examples/kv/record.h"
#include "examples/kv/store.h"

namespace kv {

class KeptRecords {
 public:
  // Makes the file where there is none.
  static absl::StatusOr<std::unique_ptr<KeptRecords>> Open(const std::string& path);
  ~KeptRecords();
  KeptRecords(const KeptRecords&) = delete;
  KeptRecords& operator=(const KeptRecords&) = delete;

  // Waits until no other process has the records, or `stop`: CANCELLED.
  absl::Status Lock(const std::atomic<bool>& stop);
  // Takes them out of the file. Behind Lock().
  absl::Status Load(absl::FunctionRef<absl::Status(std::string_view key, Fields fields)> take);
  // Writes them. Behind Load().
  absl::Status Save(const Store& store);

 private:
  KeptRecords(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
};

class WaitingKv final : public Kv::Service {
 public:
  explicit WaitingKv(KvService* service) : service_(*service) {}

  // Runs the calls that wait, in their order, and from now on all at once.
  void Open();
  // The records do not come: these and later calls end with UNAVAILABLE.
  void Refuse();

  void StartPut(weft::UnaryCall<PutRequest, PutReply> call) override;
  void StartGet(weft::UnaryCall<GetRequest, GetReply> call) override;
  void StartDelete(weft::UnaryCall<DeleteRequest, DeleteReply> call) override;
  void StartOpenIndex(weft::UnaryCall<OpenIndexRequest, OpenIndexReply> call) override;
  void StartStats(weft::UnaryCall<StatsRequest, StatsReply> call) override;
  void StartScan(weft::UnaryCall<ScanRequest, ScanReply> call) override;

 private:
  // The service's function for that, now or later.
  template <class Call>
  void Start(Call call, void (Kv::Service::*start)(Call));

  enum class State { kWaiting, kOpen, kRefusing };
  void End(State state);

  Kv::Service& service_;
  State state_ = State::kWaiting;
  std::vector<weft::Function<void()>> waiting_;  // at most the calls of all clients
};

}  // namespace kv
