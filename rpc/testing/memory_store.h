// A CompletionStore that outlives the servers of a test, as a disk would, with the ledger that
// handlers write to in the same step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "rpc/server/completion_store.h"

namespace weft::test {

class MemoryStore final : public CompletionStore {
 public:
  // The effect of a call and its outcome, at once.
  void Commit(const CompletionId& id, uint64_t number, Outcome outcome) {
    ++ledger[number];
    outcomes[KeyOf(id)] = std::move(outcome);
  }

  std::vector<Session> Sessions() override {
    std::vector<Session> all;
    for (const auto& [key, session] : sessions) all.push_back(session);
    return all;
  }
  absl::Status AddSession(const Session& session) override {
    if (!add_error.ok()) return add_error;
    sessions[{session.id.high, session.id.low}] = session;
    return absl::OkStatus();
  }
  void RemoveSession(const SessionId& session) override {
    sessions.erase({session.high, session.low});
    Forget(session, ~uint64_t{0});
  }
  absl::StatusOr<std::optional<Outcome>> Find(const CompletionId& call) override {
    if (find_errors > 0) return --find_errors, absl::InternalError("the disk is away");
    const auto found = outcomes.find(KeyOf(call));
    return found == outcomes.end() ? std::nullopt : std::optional<Outcome>(found->second);
  }
  void Forget(const SessionId& session, uint64_t first_unanswered) override {
    outcomes.erase(outcomes.lower_bound({session.high, session.low, 0}),
                   outcomes.lower_bound({session.high, session.low, first_unanswered}));
  }

  std::map<uint64_t, int> ledger;  // how often each number was committed
  std::map<std::pair<uint64_t, uint64_t>, Session> sessions;
  std::map<std::tuple<uint64_t, uint64_t, uint64_t>, Outcome> outcomes;
  absl::Status add_error;
  int find_errors = 0;

 private:
  static std::tuple<uint64_t, uint64_t, uint64_t> KeyOf(const CompletionId& id) {
    return {id.session.high, id.session.low, id.sequence};
  }
};

}  // namespace weft::test
