// All connections of one engine's network, by index: where batches find their connection, and who
// is to be looked after at the end of a turn.
//
// A batch names its connection by index and token. Where its domain tells the link that it came by
// (LinkDomain::tells_links()), it is that link's connection or none: a batch that names another
// one, or none, ends the connection of its link. Elsewhere nothing proves whose a batch is but what
// it knows: the token, the sequence number, which begins at a secret one, and the 128 bits of the
// receiver's proof (batch.h), or of a seal's tag. What does not know token, number and proof is
// counted, logged now and then, and dropped: nobody can be blamed for it, but where a seal shows
// who has made it. A batch that is a connection's and is malformed ends that connection and no
// other.
//
// A transport drives it in this order: LinkDomain::Poll() of every domain; where connections have
// news FlushAll(), so that replies do not wait for it, and RunEvents(); at the end of the engine's
// turn FlushAll() again.
//
// Threads: one engine's. Lifetime: outlives its connections and the domains that it is the sink of.
// Errors: a full table is RESOURCE_EXHAUSTED, from FramedConnection::Create().
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/intrusive_list.h"
#include "transport/framing/batch_sender.h"
#include "transport/link.h"
#include "transport/prefetch_list.h"

namespace weft {

class BatchReceiver;
struct BatchHeader;
class ExportTable;
class FramedConnection;
struct EventTag;  // has something to tell

class ConnectionTable final : public BatchSink {
 public:
  // How long events may take of one turn of the engine: as long as a hundred small calls. One more
  // may end behind it: a connection that has room again sends what waited, 0.05 ms for 256 KiB.
  static constexpr uint64_t kMostEventsNs = 100 * kNsPerUs;

  struct Stats {
    uint64_t batches_unknown = 0;    // for no connection, or not for that of their link
    uint64_t batches_malformed = 0;  // each ended its connection
  };

  // REQUIRES: 1 <= capacity < 2^32. 32 bytes of addresses each, and of memory when it is used.
  // `exports` outlives this; without it there are no leases.
  explicit ConnectionTable(uint32_t capacity, ExportTable* exports = nullptr);
  ~ConnectionTable();
  ConnectionTable(const ConnectionTable&) = delete;
  ConnectionTable& operator=(const ConnectionTable&) = delete;

  void OnReceived(ByteSpan batch, LinkHandler* by) override;

  // Tells owners and handlers what the last Poll() of the domains, or calls of their users, have
  // brought about: link up, broken, close requested, writable. Connections may be ended and
  // deleted inside. Returns how many were told. After kMostEventsNs the others wait for the next
  // turn, where they come first.
  int RunEvents(const Clock& clock) {
    ++turns_;
    return with_events_.empty() ? 0 : RunRaised(clock);
  }
  uint64_t turns() const { return turns_; }  // of RunEvents()
  bool has_events() const { return !with_events_.empty(); }
  // RunEvents() or FlushAll() have something to do.
  bool has_work() const { return has_events() || !to_flush_.empty(); }

  // Sends what connections have committed, and the credits that are due.
  void FlushAll() {
    if (!to_flush_.empty()) FlushListed();
  }

  uint32_t size() const { return size_; }
  const Stats& stats() const { return stats_; }

  // --- for connections --------------------------------------------------------------------------

  // The index of a connection whose batches `receiver` takes. Until Remove().
  absl::StatusOr<uint32_t> Add(BatchReceiver* receiver, uint32_t token);
  void Remove(uint32_t index);
  // What is to be prefetched when a batch comes, which outlives the entry; and the handler of the
  // link whose batches alone are this entry's. Null: its domain does not tell links.
  void SetLink(uint32_t index, PrefetchList* prefetch, LinkHandler* link) {
    entries_[index].prefetch = prefetch;
    entries_[index].link = link;
  }
  // To be listed in for the turn's end.
  FlushList& to_flush() { return to_flush_; }
  // To be listed in for RunEvents().
  IntrusiveList<FramedConnection, EventTag>& with_events() { return with_events_; }
  ExportTable* exports() const { return exports_; }
  void CountMalformed() { ++stats_.batches_malformed; }

 private:
  struct Entry {
    BatchReceiver* receiver = nullptr;  // null: free
    LinkHandler* link = nullptr;        // as SetLink() says; null, too, while there is none
    uint32_t token = 0;
    uint32_t next_free = 0;
    PrefetchList* prefetch = &PrefetchList::None();
  };

  static bool IsFor(const Entry& entry, ByteSpan batch, const BatchHeader& header);
  static bool IsMisplaced(const Entry& entry, ByteSpan batch, const BatchHeader& header);
  void OnUnknown(LinkHandler* by);
  int RunRaised(const Clock& clock);
  void FlushListed();

  ExportTable* const exports_;
  const uint32_t capacity_;
  std::vector<Entry> entries_;  // those that were ever used, where capacity_ have room
  uint32_t first_free_ = 0;     // entries_.size(): the next one is new
  uint32_t size_ = 0;
  FlushList to_flush_;
  IntrusiveList<FramedConnection, EventTag> with_events_;
  uint64_t turns_ = 0;
  Stats stats_;
};

}  // namespace weft
