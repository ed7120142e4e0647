// The user of a connection that is fuzzed, and what it asks for: each checks that it hears as much
// as it should, in the right order.
//
// Threads: one. Lifetime: those of connection.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "core/check.h"
#include "transport/connection.h"
#include "transport/lease.h"
#include "transport/operation.h"

namespace weft {

struct OnceOperation final : Operation {
  ~OnceOperation() { WEFT_CHECK(completions == posted); }
  void OnComplete(const absl::Status&) override { WEFT_CHECK(++completions <= posted); }
  int posted = 0;
  int completions = 0;
};

struct OnceAtomic final : AtomicOperation {
  ~OnceAtomic() { WEFT_CHECK(completions == posted); }
  void OnComplete(const absl::Status&, uint64_t) override { WEFT_CHECK(++completions <= posted); }
  int posted = 0;
  int completions = 0;
};

struct OnceDerivation final : Derivation {
  ~OnceDerivation() { WEFT_CHECK(completions == posted); }
  void OnDerived(const absl::Status&, const RegionHandle&) override {
    WEFT_CHECK(++completions <= posted);
  }
  int posted = 0;
  int completions = 0;
};

struct OnceLease final : Lease {
  ~OnceLease() { WEFT_CHECK(endings == asked); }
  void OnGranted() override { WEFT_CHECK(endings < asked); }
  void OnEnded(const absl::Status& why) override { WEFT_CHECK(!why.ok() && ++endings <= asked); }
  int asked = 0;
  int endings = 0;
};

// It will complete; what is done at once, or refused, will not.
inline bool IsPending(const absl::StatusOr<Posted>& posted) {
  return posted.ok() && *posted == Posted::kPending;
}

struct FuzzUser final : ConnectionHandler {
  void OnOpen(Connection&) override { WEFT_CHECK(opens++ == 0 && closes == 0); }
  void OnMessage(Connection& connection, ByteSpan message) override {
    WEFT_CHECK(opens == 1 && closes == 0 && connection.state() == Connection::State::kOpen);
    for (const std::byte byte : message) sum += static_cast<unsigned>(byte);  // can be read
    ++messages;
    if (only.has_value()) {
      WEFT_CHECK(std::all_of(message.begin(), message.end(),
                             [this](std::byte byte) { return byte == *only; }));
    }
    if (keeps) kept.push_back(connection.KeepMessage());
    if (closes_at_message) connection.Close("enough");
  }
  void OnWritable(Connection&) override { WEFT_CHECK(closes == 0); }
  void OnClosed(Connection&, const absl::Status& why) override {
    WEFT_CHECK(!why.ok() && closes++ == 0);
  }
  int opens = 0;
  int closes = 0;
  uint64_t messages = 0;
  unsigned sum = 0;
  bool keeps = false;
  bool closes_at_message = false;
  std::optional<std::byte> only;  // all that messages have in them that come now
  std::vector<std::shared_ptr<const void>> kept;
};

}  // namespace weft
