// Calls at a steady rate, whatever becomes of them, and afterwards the question whether the store
// agrees with what the callers were told.
//
// Every second call is a Put of a key of its own, the others read one that was written. A Put that
// ended OK must have created its record: an existing one would mean that the call ran twice.
//
// Threads: main()'s; replies arrive on the engine's. Lifetime: the channel outlives it; calls may
//   end after it is gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/clock.h"
#include "examples/kv/kv.weft.h"
#include "examples/verify/witness/ledger.h"
#include "weft/channel.h"

namespace kv::witness {

class Load {
 public:
  Load(weft::Channel& channel, uint64_t timeout_us);

  // Starts the next call.
  void StartCall();

  Ledger& ledger() { return book_->ledger; }

  struct Audit {
    uint64_t missing = 0;  // Put ended OK, and the record is not there as written
    uint64_t ghosts = 0;   // Put was "not sent", and the record is there
    uint64_t unread = 0;   // the question could not be put
  };
  // Compares the store with the endings, one blocking call for each Put. For a server that has
  // lived since the first call.
  Audit Compare();

 private:
  struct Put;
  struct Get;

  static constexpr uint64_t kNothing = ~uint64_t{0};
  struct Book {
    explicit Book(const weft::Clock& clock) : clock(clock) {}
    void End(uint64_t number, const absl::Status& status, bool reply_right) {
      ledger.End(number, status, reply_right, clock.NowNs());
    }

    const weft::Clock& clock;
    Ledger ledger;
    std::atomic<uint64_t> written{kNothing};  // the last Put that ended OK
  };

  void StartPut(uint64_t number);
  void StartGet(uint64_t number, uint64_t of);
  weft::CallOptions Options() const;

  weft::Channel& channel_;
  const Kv::Stub kv_;
  const uint64_t timeout_us_;
  const std::shared_ptr<Book> book_;  // with the calls that are under way
};

}  // namespace kv::witness
