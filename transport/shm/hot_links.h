// Which links of a domain are looked at in every turn, and how the others are found.
//
//   A link is   from                                                       to
//   hot         Join(), MakeHot(), its ready flag, AwaitAnswer()            cold
//   cold        kQuietTurns turns without a record, if there are more than  hot
//               kAlwaysHot links; MakeCold()
//
// Hot links are looked at one after the other in every turn. Of cold ones only the ready flags are
// (ready_flags.h), and now and then one ring. What a cold link and all above it touch with a record
// is listed when it goes cold, while it is in the near caches, and is prefetched at once when its
// flag is set (prefetch_list.h).
//
// A Link has
//   hot()                  its HotPlace, where this keeps what each record touches
//   down()                 it will bring nothing any more
//   Look()                 what has come, for Receive(); 0: nothing
//   Receive(found, budget) takes it; returns how much there was. It may destroy any link
//   RegisterForPrefetch()  writes down what its next record will touch
//
// Threads: the engine's; the flags any.
// Lifetime: a link is here from Join() to Leave(). The flags and *has_duties outlive this.
// Invariants: a link is in hot_ at its place, or cold. *has_duties where HasDuties().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/grown_array.h"
#include "core/inline.h"
#include "transport/prefetch_list.h"
#include "transport/shm/ready_flags.h"

namespace weft {

// What a link keeps for HotLinks.
struct HotPlace {
  static constexpr uint32_t kCold = ~uint32_t{0};

  bool cold() const { return place == kCold; }

  uint32_t flag = 0;         // index of its ready flag; constant from Join() to Leave()
  uint32_t place = kCold;    // in the list of hot links
  uint32_t quiet_turns = 0;  // since it had a record
};

template <class Link>
class HotLinks {
 public:
  // Where there are no more links than this, all are hot however quiet they are: an empty look
  // costs some 3 ns.
  static constexpr size_t kAlwaysHot = 8;
  // Turns without a record after which a link goes cold, if there are more. Calls that go round a
  // thousand links leave each hot for so many turns: with 512 of them each turn looked at so many
  // rings that a call took 10 times as long as with one link.
  static constexpr uint32_t kQuietTurns = 16;
  // The same for the link that was cold when this side sent: its answer takes a round trip, some 30
  // turns, and the handler's time.
  static constexpr uint32_t kAwaitedTurns = 1024;
  // While one is awaited, one turn of so many looks at the flags of cold links: the scan takes
  // longer than all else in a turn, and the answer arrives meanwhile. Others wait for 0.1 us at
  // most.
  static constexpr uint32_t kAwaitedTurnsPerScan = 4;
  // Looks at hot rings after a flag was set, until there is a record: most flags are set ahead of
  // their records, by 0.1 to 0.3 us. A peer that sets its flag for nothing costs the others as
  // much.
  static constexpr size_t kLooksAfterFlag = 64;
  // One scan of so many looks into a cold ring whose flag is not set: some peer may have cleared it
  // (ready_flags.h). That is a cache miss, 0.1 us, so that a scan costs less than 1 ns more. A
  // record whose flag was cleared waits for so many scans times the number of links at most: with
  // kMaxShmLinks and scans of 0.2 us for less than a second, and not beyond the engine's next
  // sleep, before which all rings are looked at.
  static constexpr uint32_t kScansPerColdLook = 256;
  static_assert(uint64_t{kScansPerColdLook} * kMaxShmLinks <= 1 << 21);
  // Records of one link in one turn: others do not wait for a flood.
  static constexpr int kRecordsAtOnce = 32;

  HotLinks(ReadyFlags* flags, bool* has_duties)
      : flags_(*flags), has_duties_(*has_duties), prefetch_lists_(kMaxShmLinks) {}

  // Gives the link a ready flag, and makes it hot. False: all flags are taken.
  bool Join(Link* link) {
    const uint32_t flag = flags_.Take();
    if (flag == ReadyFlags::kNone) return false;
    if (flag >= links_.size()) links_.resize(flag + 1);
    while (flag >= prefetch_lists_.size()) prefetch_lists_.Grow();
    links_[flag] = link;
    link->hot().flag = flag;
    hot_.reserve(links_.size());
    ++size_;
    ++cold_links_;
    MakeHot(link);
    return true;
  }
  // REQUIRES: it is cold.
  void Leave(Link* link) {
    const uint32_t flag = link->hot().flag;
    links_[flag] = nullptr;
    prefetch_lists_[flag].Clear();
    flags_.Give(flag);
    --size_;
    --cold_links_;
  }

  PrefetchList& PrefetchOf(Link* link) { return prefetch_lists_[link->hot().flag]; }

  // It is looked at in every turn from now on.
  void MakeHot(Link* link) {
    HotPlace& hot = link->hot();
    if (!hot.cold()) return;
    if (hot_.size() == hot_.capacity()) CloseHoles();
    hot.place = static_cast<uint32_t>(hot_.size());
    hot.quiet_turns = 0;
    hot_.push_back(link);
    --cold_links_;
    flags_.MakeHot(hot.flag);
    PrefetchOf(link).Drop();
  }
  // It is not. Inside its Receive(): which does not go on.
  void MakeCold(Link* link) {
    HotPlace& hot = link->hot();
    if (hot.cold()) return;
    hot_[hot.place] = nullptr;  // a hole, because the list may be being walked
    ++holes_;
    hot.place = HotPlace::kCold;
    ++cold_links_;
    has_duties_ = true;
    if (awaited_ == link) awaited_ = nullptr;
    if (receiving_ == link) receiving_ = nullptr;
    flags_.MakeCold(hot.flag);
  }

  // Something was sent over a cold link: its answer is awaited there.
  void AwaitAnswer(Link* link) {
    MakeHot(link);
    awaited_ = link;
  }

  // Whether the turns are to be ReceiveAll().
  bool HasDuties() const { return cold_links_ > 0 || holes_ > 0; }

  // One turn of hot links: up to about `budget` records. Returns how many.
  WEFT_INLINE int Receive(int budget) { return Walk</*kMayCool=*/true>(budget); }

  // One turn of all links. seen() is called for each flag that was set.
  template <class Seen>
  int ReceiveAll(int budget, Seen&& seen) {
    const bool ready = IsTimeToScan() && Scan(seen);
    int done = Walk</*kMayCool=*/true>(budget);
    if (ready && done == 0) done = AwaitRecord(budget);
    if (holes_ > 0) CloseHoles();
    return done;
  }

  // Looks into every ring, and makes those hot that have something. True: one has.
  bool AnyHasInput() {
    bool any = false;
    for (Link* const link : links_) {
      if (link == nullptr || link->Look() == 0) continue;
      MakeHot(link);
      any = true;
    }
    return any;
  }

  // Inside the link's Receive(): whether it lives, and is to go on.
  bool IsReceiving(const Link* link) const { return receiving_ == link; }

  // Links that are hot now.
  size_t count() const { return hot_.size() - holes_; }

 private:
  template <bool kMayCool>
  WEFT_INLINE int Walk(int budget) {
    int done = 0;
    const bool may_cool = kMayCool && size_ > kAlwaysHot;
    for (size_t left = hot_.size(); left > 0 && done < budget; --left) {
      if (next_hot_ >= hot_.size())
        next_hot_ = 0;  // also where callbacks have moved what is behind
      Link* const link = hot_[next_hot_++];
      if (link == nullptr) [[unlikely]]
        continue;
      if (const uint64_t found = link->Look(); found != 0) {
        done += ReceiveFrom(link, found, budget - done);
      } else if (may_cool) {
        StayQuiet(link);
      }
    }
    return done;
  }

  WEFT_INLINE int ReceiveFrom(Link* link, uint64_t found, int budget) {
    receiving_ = link;
    const int received = link->Receive(found, std::min(budget, kRecordsAtOnce));
    if (IsReceiving(link)) [[likely]] {
      link->hot().quiet_turns = 0;
      if (awaited_ == link) awaited_ = nullptr;
      receiving_ = nullptr;
    }
    return received;
  }

  void StayQuiet(Link* link) {
    if (++link->hot().quiet_turns > (link == awaited_ ? kAwaitedTurns : kQuietTurns)) LetCool(link);
  }

  // While everything that the next record will touch is known, and in the near caches, it is
  // written down.
  void LetCool(Link* link) {
    MakeCold(link);
    if (link->Look() != 0) return MakeHot(link);
    link->RegisterForPrefetch(PrefetchOf(link));
  }

  bool IsTimeToScan() {
    if (cold_links_ == 0) return false;
    if (awaited_ == nullptr) return true;
    if (turns_to_scan_-- > 0) return false;
    turns_to_scan_ = kAwaitedTurnsPerScan - 1;
    return true;
  }

  // Makes those hot whose flags are set. True: there was one.
  template <class Seen>
  bool Scan(Seen&& seen) {
    bool ready = false;
    flags_.ForEachReady([&](uint32_t flag) {
      if (flag >= links_.size() || links_[flag] == nullptr) return;
      seen();
      PrefetchList& prefetch = prefetch_lists_[flag];
      if (prefetch.wanted()) prefetch.Fetch();
      if (links_[flag]->down()) return;
      MakeHot(links_[flag]);
      ready = true;
    });
    if (++scans_ >= kScansPerColdLook) [[unlikely]]
      LookAtNextCold();
    return ready;
  }

  WEFT_COLD void LookAtNextCold() {
    scans_ = 0;
    if (next_cold_ >= links_.size()) next_cold_ = 0;
    Link* const link = links_[next_cold_++];
    if (link != nullptr && link->Look() != 0) MakeHot(link);
  }

  // A flag was set, and its record may be on its way.
  WEFT_COLD int AwaitRecord(int budget) {
    int done = 0;
    for (size_t looks = 0; done == 0 && looks < kLooksAfterFlag && !hot_.empty();) {
      looks += hot_.size();
      done = Walk</*kMayCool=*/false>(budget);
    }
    return done;
  }

  void CloseHoles() {
    uint32_t end = 0;
    for (Link* const link : hot_) {
      if (link == nullptr) continue;
      link->hot().place = end;
      hot_[end++] = link;
    }
    hot_.resize(end);
    holes_ = 0;
  }

  ReadyFlags& flags_;
  bool& has_duties_;

  // By index of the ready flag.
  std::vector<Link*> links_;                 // null: free
  GrownArray<PrefetchList> prefetch_lists_;  // of cold links: wanted

  std::vector<Link*> hot_;      // capacity for all links; null: left since CloseHoles()
  size_t next_hot_ = 0;         // whose turn it is when the budget was used up
  size_t holes_ = 0;            // in hot_
  size_t size_ = 0;             // links
  size_t cold_links_ = 0;       // of them
  Link* receiving_ = nullptr;   // whose Receive() is running, while it may go on
  Link* awaited_ = nullptr;     // was cold when this side sent, and has not been heard since
  uint32_t turns_to_scan_ = 0;  // while one is awaited
  uint32_t scans_ = 0;          // since the last look at a cold ring
  uint32_t next_cold_ = 0;      // the ring to look at then
};

}  // namespace weft
