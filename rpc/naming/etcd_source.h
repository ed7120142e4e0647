// The servers that etcd has below a prefix: one for each key, whose value is a line as a file's
// (ParseServerList()). The list is read once, and what changes is watched from its revision on.
//
//   state     what there is                            what ends it
//   paused    a timer                                  the timer -> reading
//   reading   the list is asked for                    it is there -> watching; an error -> paused
//   watching  a reply that goes on and on: what has    an error, a reply's end, a list that is too
//             changed since the list's revision        long, another etcd than was read -> paused
//
// `refresh_us` after its first message the watch is begun again behind the revision that is known:
// who watches hears nothing of a member that hangs or was cut off, and learns by this that it does
// not answer. Until the first message of a watch has come, EtcdClient's deadline decides, however
// short `refresh_us` is. A watch whose revision etcd has compacted away ends, and the list is read
// anew. So it is when etcd has lost its data, or another cluster answers, which its revision and
// its cluster's number show.
//
// Each telling has all servers, so that changes that come close together, as those of a fleet that
// starts, are told together: at once, and then once in kTellUs.
//
// Threads, lifetime: AddressSource's; on an engine of the real clock.
// Errors: EtcdClient's; no key below the prefix has a server; more than kMaxServersListed. Pauses
//   between attempts grow from kMinPauseUs to kMaxPauseUs, and each attempt is at the next member.
// Invariants: what etcd says is not trusted: a value that is no server is left out, with a word in
//   the log; keys, values, and their number are bounded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/timer_wheel.h"
#include "rpc/client/address_source.h"
#include "rpc/client/backoff.h"
#include "rpc/naming/etcd.pb.h"
#include "rpc/naming/etcd_client.h"
#include "transport/engine.h"

namespace weft {

// `target`: what stands behind "etcd:". UNAVAILABLE: libcurl is not there.
absl::StatusOr<std::unique_ptr<AddressSource>> MakeEtcdSource(std::string_view target,
                                                              const EtcdOptions& options);

class EtcdSource final : public AddressSource, private EtcdClient::Host, private Timer {
 public:
  static constexpr uint64_t kMinPauseUs = 100'000;     // a member that restarts takes a second
  static constexpr uint64_t kMaxPauseUs = 10'000'000;  // of all clients of a cluster that is down
  static constexpr size_t kMaxValueBytes = 1024;       // an address and a zone, with some to spare
  // A list of kMaxServersListed takes some milliseconds to be told and looked at.
  static constexpr uint64_t kTellUs = 20'000;

  EtcdSource(EtcdTarget target, const EtcdOptions& options)
      : target_(std::move(target)), options_(options) {}

  void Start(EngineCore& engine, AddressSource::Host* host, uint64_t refresh_us) override;
  void Refresh() override {}  // a server that etcd has no more is told of as soon as etcd knows

 private:
  enum class State : uint8_t { kPaused = 1, kReading = 2, kWatching = 3 };

  void OnEtcdMessage(std::string_view json) override;
  void OnEtcdEnd(const absl::Status& status) override;
  void OnTimer() override;

  void Read();
  void Watch();
  void Pause(const absl::Status& why);
  void LeaveEndpoint(const absl::Status& why);
  absl::Status TakeList(std::string_view json);
  absl::Status TakeChanges(std::string_view json);
  bool Put(const rpc::EtcdKeyValue& entry);
  void SayServers();   // now, or soon
  void TellServers();  // now

  // The pause between two tellings.
  class Telling final : public Timer {
   public:
    explicit Telling(EtcdSource* source) : source_(*source) {}
    bool due = false;  // when the pause is over

   private:
    void OnTimer() override {
      if (std::exchange(due, false)) source_.SayServers();
    }
    EtcdSource& source_;
  };

  const EtcdTarget target_;
  const EtcdOptions options_;

  AddressSource::Host* host_ = nullptr;
  EngineCore* engine_ = nullptr;
  uint64_t refresh_us_ = 0;
  std::unique_ptr<EtcdClient> client_;
  std::unique_ptr<Backoff> backoff_;
  State state_ = State::kPaused;
  bool watch_answers_ = false;                   // the first message of this watch has come
  std::map<std::string, ListedServer> servers_;  // by key
  Telling telling_{this};
  // Of what servers_ are.
  int64_t revision_ = 0;  // 0: not known
  uint64_t cluster_ = 0;
};

}  // namespace weft
