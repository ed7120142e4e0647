// A domain and a link that do what a test says, and the parts of a connection over them.
//
// Threads: the test's.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/framing/batch_sender.h"
#include "transport/framing/framing_domain.h"
#include "transport/link.h"

namespace weft {

class FakeRegion final : public Region {
 public:
  explicit FakeRegion(MutableByteSpan memory) : Region(memory, {7, 0, memory.size()}) {}
};

class FakeDomain final : public LinkDomain {
 public:
  static constexpr uint32_t kSlotBytes = 1024;

  FakeDomain() {
    path_.kind = PathKind::kShm;
    stats_.receives_posted = 1000;
  }

  const PathInfo& path() const override { return path_; }
  const std::string& address() const override { return address_; }
  uint32_t slot_bytes() const override { return kSlotBytes; }
  uint8_t frames_to_part() const override { return 0; }
  absl::Status AddSlots(uint32_t, uint32_t) override { return absl::OkStatus(); }
  void RemoveSlots(uint32_t, uint32_t) override {}
  SendSlot AcquireSlot() override {
    if (free_slots == 0) return {};
    --free_slots;
    slots_.push_back(std::make_unique<std::byte[]>(kSlotBytes));
    return {slots_.back().get(), nullptr};
  }
  void ReleaseSlot(SendSlot) override { ++free_slots; }
  absl::StatusOr<std::unique_ptr<Link>> Connect(const LinkPeer&, LinkHandler*) override {
    return absl::UnimplementedError("fake");
  }
  absl::StatusOr<std::unique_ptr<Link>> Accept(const LinkPeer&, LinkHandler*) override {
    return absl::UnimplementedError("fake");
  }
  absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan memory, Access) override {
    if (!registered.ok()) return registered;
    return std::unique_ptr<Region>(std::make_unique<FakeRegion>(memory));
  }
  int Poll(int) override { return 0; }
  bool Arm() override { return true; }
  int descriptor() const override { return -1; }
  bool busy() const override { return false; }
  const LinkDomainStats& stats() const override { return stats_; }

  void set_kind(PathKind kind) { path_.kind = kind; }

  int free_slots = 100;
  absl::Status registered;  // not OK: memory cannot be

 private:
  PathInfo path_;
  std::string address_;
  LinkDomainStats stats_;
  std::vector<std::unique_ptr<std::byte[]>> slots_;
};

// Keeps what is sent and posted.
class FakeLink final : public Link {
 public:
  explicit FakeLink(FakeDomain* domain) : domain_(domain) {}

  absl::Status Send(const SendSlot& slot, uint32_t bytes) override {
    sent.emplace_back(slot.data, slot.data + bytes);
    ++domain_->free_slots;
    return absl::OkStatus();
  }
  SendSlot TakeSlot(uint32_t /*least*/) override { return domain_->AcquireSlot(); }
  absl::StatusOr<Posted> Post(TransferKind, absl::Span<const Transfer> transfers,
                              Operation* op) override {
    if (result.ok() && *result == Posted::kPending) {
      posted.push_back(op);
      reads.push_back(transfers[0].local->memory().first(transfers[0].remote.length));
    }
    return result;
  }
  bool Reclaim(std::unique_ptr<Region>) override { return reclaims; }
  void Abandon() override {}

  std::vector<std::vector<std::byte>> sent;
  absl::StatusOr<Posted> result = Posted::kPending;
  std::vector<Operation*> posted;
  std::vector<MutableByteSpan> reads;  // where to, for each of `posted`
  bool reclaims = true;

 private:
  FakeDomain* const domain_;
};

// A started sender with nothing above it.
class PartsTest : public testing::Test, protected BatchSender::Host {
 protected:
  static constexpr uint32_t kWindow = 4;

  static LinkAgreement Agreement() {
    LinkAgreement agreement;
    agreement.send_window_slots = agreement.receive_window_slots = kWindow;
    agreement.batch_bytes = FakeDomain::kSlotBytes;
    agreement.peer_answers = true;
    return agreement;
  }
  void Start(const BatchTag& tag = {}) {
    sender_.Start(&framing_, &link_, Agreement(), tag);
    sender_.Open();
  }
  void TearDown() override {
    sender_.Shut();
    sender_.Stop();
    sender_.Unlist();
    EXPECT_EQ(links_.free_slots, 100) << "every slot came back";
  }
  // What a turn's end does.
  void EndTurn() {
    while (BatchSender* sender = to_flush_.PopFront()) sender->FlushTurn();
  }
  // False: refused.
  bool Send(std::string_view text) {
    const MessageSpace space = sender_.AppendToNextSlot(text.size());
    if (space.data != nullptr) std::memcpy(space.data, text.data(), text.size());
    return space.data != nullptr;
  }
  // The messages of what was sent as batch `i`.
  std::vector<std::string> MessagesOf(size_t i) const {
    BatchHeader header;
    EXPECT_TRUE(DecodeBatchHeader(link_.sent[i], &header));
    std::vector<std::string> texts;
    BatchReader reader(link_.sent[i], header.frames);
    Frame frame;
    while (reader.Next(&frame)) {
      texts.emplace_back(reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size());
    }
    EXPECT_TRUE(reader.complete());
    return texts;
  }

  bool AppendDue() override { return false; }

  FakeDomain links_;
  FakeLink link_{&links_};
  FramingDomain framing_{&links_};
  FlushList to_flush_;
  BatchSender sender_{this, &to_flush_};
};

}  // namespace weft
