#include "transport/control/peer_groups.h"

#include <cstdint>
#include <utility>

#include "core/check.h"
#include "core/random.h"
#include "core/strings.h"
#include "transport/hmac.h"

namespace weft {

class PeerGroups::Group final : public Timer {
 public:
  explicit Group(PeerGroups* groups) : groups_(groups) {}

  void Start(const PeerWatch::Terms& terms) {
    watch_.Start(groups_->clock_->NowNs(), terms);
    Schedule();
  }
  PeerWatch& watch() { return watch_; }
  bool empty() const { return members_.empty(); }

  // Where it is found; null: it is not.
  const Key* key = nullptr;

  void Add(Member* member) {
    members_.PushBack(member);
    SetPace();
  }
  void Remove(Member* member) {
    members_.Remove(member);
    SetPace();
    if (beats_ == 0 || member->carried_ != beats_) return;
    watch_.BeatSoon(groups_->clock_->NowNs());
    Schedule();
  }

 private:
  void SetPace() {
    const bool one = members_.Front() == members_.Back();
    watch_.SetPace(one ? PeerWatch::kHeartbeatsPerTimeout : PeerWatch::kSharedPerTimeout);
  }

  void OnTimer() override {
    const auto has_unread = [this] {
      for (const Member& member : members_) {
        if (member.HasUnread()) return true;
      }
      return false;
    };
    switch (watch_.OnTime(groups_->clock_->NowNs(), has_unread)) {
      case PeerWatch::Verdict::kNothing:
        break;
      case PeerWatch::Verdict::kHeartbeat:
        Beat();
        break;
      case PeerWatch::Verdict::kSilent:
        // A connection that opens now is another life of the peer's.
        groups_->Hide(this);
        for (Member& member : members_) member.OnSilent();
        return;
    }
    Schedule();
  }

  void Beat() {
    ++beats_;
    for (int i = 0; i < kCarriers; ++i) {
      Member* const next = members_.Front();
      if (next->carried_ == beats_) return;  // there are no more
      next->carried_ = beats_;
      members_.Remove(next);
      members_.PushBack(next);
      next->SendHeartbeat();
    }
  }

  void Schedule() {
    if (watch_.due_ns() != kNever) groups_->timers_->Schedule(this, watch_.due_ns());
  }

  PeerGroups* const groups_;
  PeerWatch watch_;
  IntrusiveList<Member, PeerMemberTag> members_;
  uint64_t beats_ = 0;
};

PeerGroups::PeerGroups(const Clock* clock, TimerWheel* timers) : clock_(clock), timers_(timers) {
  SecureRandomBytes(secret_);
}

PeerGroups::~PeerGroups() {
  WEFT_CHECK(size() == 0);  // Ours: connections leave before their transport ends
}

Nonce128 PeerGroups::ClientKey(std::string_view server, const void* credentials) const {
  return HmacNonce(secret_,
                   StrCat("client ", reinterpret_cast<uintptr_t>(credentials), " ", server));
}

Nonce128 PeerGroups::ServerKey(const PeerIdentity& client) const {
  return HmacNonce(secret_, StrCat("server ", static_cast<int>(client.authentication), " ",
                                   client.user_id, " ", client.group_id, " ", ProvedNames(client)));
}

void PeerGroups::Join(Member* member, const ControlLimits& own, const ControlLimits& peer) {
  WEFT_CHECK(member->group_ == nullptr);  // Ours: once for each connection
  const auto terms_of = [](const ControlLimits& side) {
    return side.peer_timeout_ns << 1 | static_cast<uint64_t>(side.heartbeats);
  };
  const Nonce128& mine = own.engine_key;
  const Nonce128& theirs = peer.engine_key;
  Group* group = nullptr;
  if (mine != Nonce128() && theirs != Nonce128()) {
    const Key key = {{mine.high, mine.low, theirs.high, theirs.low, terms_of(own), terms_of(peer)}};
    const auto place = shared_.try_emplace(key, nullptr).first;
    group = place->second;
    if (group == nullptr) {
      group = place->second = new Group(this);
      group->key = &place->first;
    }
  } else {
    group = new Group(this);
    ++alone_;
  }
  member->group_ = group;
  if (group->empty()) group->Start({own.peer_timeout_ns, peer.peer_timeout_ns, peer.heartbeats});
  group->Add(member);
}

void PeerGroups::Leave(Member* member) {
  Group* const group = member->group_;
  if (group == nullptr) return;
  member->group_ = nullptr;
  group->Remove(member);
  if (!group->empty()) return;
  Hide(group);
  --alone_;
  delete group;
}

void PeerGroups::OnHeard(Member* member) { member->group_->watch().OnHeard(clock_->NowNs()); }

bool PeerGroups::OnFrame(Member* member) {
  return member->group_->watch().OnFrame(&member->frames_);
}

void PeerGroups::Hide(Group* group) {
  if (group->key == nullptr) return;
  shared_.erase(*std::exchange(group->key, nullptr));
  ++alone_;
}

}  // namespace weft
