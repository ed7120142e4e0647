#include "transport/framing/connection_table.h"

#include "absl/status/status.h"
#include "core/check.h"
#include "core/log.h"
#include "core/strings.h"
#include "transport/framing/batch.h"
#include "transport/framing/framed_connection.h"

namespace weft {

ConnectionTable::ConnectionTable(uint32_t capacity, ExportTable* exports)
    : exports_(exports), capacity_(capacity) {
  WEFT_CHECK(capacity >= 1);  // Ours: a constant
  entries_.reserve(capacity);
}

// Ours: End() removes each connection
ConnectionTable::~ConnectionTable() { WEFT_CHECK(size_ == 0); }

int ConnectionTable::RunRaised(const Clock& clock) {
  const uint64_t begin_ns = clock.NowNs();
  int count = 0;
  TakeTurns(&with_events_, [&](FramedConnection* connection) {
    connection->RunEvents();
    ++count;
    return clock.NowNs() - begin_ns < kMostEventsNs;
  });
  return count;
}

void ConnectionTable::OnUnknown(LinkHandler* by) {
  ++stats_.batches_unknown;
  if (by != nullptr) {
    by->OnLinkDown(absl::DataLossError(
        "the peer broke the protocol: a batch that is not for the connection of its link"));
    return;
  }
  WEFT_LOG_EVERY_N_SEC(kWarning, 10, stats_.batches_unknown,
                       " batches so far are for no connection of this engine: left over from one "
                       "that has ended, or a peer tries to speak for another");
}

void ConnectionTable::FlushListed() {
  while (BatchSender* sender = to_flush_.PopFront()) sender->FlushTurn();
}

absl::StatusOr<uint32_t> ConnectionTable::Add(BatchReceiver* receiver, uint32_t token) {
  if (size_ == capacity_) {
    return absl::ResourceExhaustedError(
        StrCat("all ", capacity_, " connections of this engine are in use: close some first"));
  }
  const uint32_t index = first_free_;
  if (index == entries_.size()) entries_.emplace_back().next_free = index + 1;
  first_free_ = entries_[index].next_free;
  entries_[index].receiver = receiver;
  entries_[index].token = token;
  ++size_;
  return index;
}

void ConnectionTable::Remove(uint32_t index) {
  entries_[index].receiver = nullptr;
  SetLink(index, &PrefetchList::None(), nullptr);
  entries_[index].next_free = first_free_;
  first_free_ = index;
  --size_;
}

}  // namespace weft
