// Sealed records on a way that somebody else has in his hands, for a fuzzer.
//
// Each byte chooses an event: one side seals a record, of any length; the oldest record arrives as
// it left; or something arrives that should not: a record that was changed, cut, lengthened, kept
// back, sent again, made for another place, use or direction, or made up. Nothing but the record in
// its place, byte for byte, may open, through as many keys as there are.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/testing/fuzz_input.h"
#include "transport/framing/seal.h"

namespace weft {
namespace {

constexpr int kMostEvents = 100;
// The latest records are remembered, to come again or too early.
constexpr size_t kMostRemembered = 16;

struct Record {
  uint64_t number = 0;
  std::vector<std::byte> plain;
  std::vector<std::byte> header;
  std::vector<std::byte> sealed;
  std::vector<std::byte> tag;
};

bool IsSame(const Record& a, const Record& b) {
  return a.header == b.header && a.sealed == b.sealed && a.tag == b.tag;
}

// One direction of a connection: what seals, what opens, and what is on the way between them.
class Direction {
 public:
  Direction(FuzzInput* input, const LinkSecret& secret, std::string_view label,
            uint64_t records_per_key)
      : input_(*input),
        secret_(secret),
        records_per_key_(records_per_key),
        out_(Seal::Role::kEncrypts, secret, label, records_per_key),
        in_(Seal::Role::kDecrypts, secret, label, records_per_key) {}

  void Happen() {
    switch (input_.Below(8)) {
      case 0:
      case 1:
        return SealOne(out_, out_.records());
      case 2:
      case 3:
        return Arrive();
      case 4:
        return ArriveChanged();
      case 5:
        return ArriveOutOfOrder();
      case 6:
        return ArriveFromElsewhere();
      default:
        return LookElsewhere();
    }
  }

  // What is still on the way opens, whatever was tried before.
  void ArriveAll() {
    while (in_.records() < out_.records()) Arrive();
  }

 private:
  static constexpr std::byte kUntouched{0x5A};

  void SealOne(Seal& by, uint64_t number) {
    // So few are on the way that the oldest is still remembered.
    if (&by == &out_ && number - in_.records() >= kMostRemembered) return;
    Record record;
    record.number = number;
    const size_t bytes = input_.U8() < 250 ? input_.U8() : input_.U16() % 8192;
    record.plain.assign(bytes, std::byte{input_.U8()});
    const ByteSpan header = input_.Bytes(input_.Below(33));
    record.header.assign(header.begin(), header.end());
    record.tag.resize(Seal::kTagBytes);
    record.sealed.resize(bytes);
    if (input_.Bit()) {  // in its place
      record.sealed = record.plain;
      by.Encrypt(record.header, record.sealed, record.sealed.data(), record.tag.data());
    } else {
      by.Encrypt(record.header, record.plain, record.sealed.data(), record.tag.data());
    }
    WEFT_CHECK(by.records() == number + 1);
    if (&by != &out_) return Refuse(record);
    if (remembered_.size() == kMostRemembered) remembered_.erase(remembered_.begin());
    remembered_.push_back(std::move(record));
  }

  const Record* Find(uint64_t number) const {
    for (const Record& record : remembered_) {
      if (record.number == number) return &record;
    }
    return nullptr;
  }
  // Any that is remembered; null: there is none.
  const Record* Some() {
    return remembered_.empty() ? nullptr : &remembered_[input_.U8() % remembered_.size()];
  }

  bool Open(const Record& record, std::vector<std::byte>* opened) {
    // In memory of exactly its size, or in its place.
    *opened = record.sealed;
    if (input_.Bit()) return in_.Decrypt(record.header, *opened, record.tag, opened->data());
    std::fill(opened->begin(), opened->end(), kUntouched);
    return in_.Decrypt(record.header, record.sealed, record.tag, opened->data());
  }

  void Arrive() {
    if (in_.records() == out_.records()) return;
    const Record* const record = Find(in_.records());
    WEFT_CHECK(record != nullptr);
    std::vector<std::byte> opened;
    WEFT_CHECK(Open(*record, &opened) && opened == record->plain);
    WEFT_CHECK(in_.records() == record->number + 1);
  }

  // `record` is not what was sealed for this place.
  void Refuse(const Record& record) {
    const Record* const expected = Find(in_.records());
    if (expected != nullptr && IsSame(*expected, record)) return;
    const uint64_t before = in_.records();
    std::vector<std::byte> opened;
    WEFT_CHECK(!Open(record, &opened) && in_.records() == before);
  }

  static void Change(std::vector<std::byte>* bytes, FuzzInput& input) {
    switch (input.Below(4)) {
      case 0:
        if (!bytes->empty()) (*bytes)[input.U16() % bytes->size()] ^= std::byte{input.U8()};
        return;
      case 1:
        bytes->resize(std::min<size_t>(bytes->size(), input.U8()));
        return;
      case 2:
        bytes->push_back(std::byte{input.U8()});
        return;
      case 3: {
        const ByteSpan invented = input.Bytes(input.Below(64));
        bytes->assign(invented.begin(), invented.end());
        return;
      }
    }
  }

  void ArriveChanged() {
    const Record* const record = Some();
    Record changed = record == nullptr ? Record() : *record;
    changed.tag.resize(Seal::kTagBytes);
    switch (input_.Below(5)) {
      case 0:
        Change(&changed.header, input_);
        break;
      case 1:
        Change(&changed.sealed, input_);
        break;
      case 2:
        Change(&changed.tag, input_);
        changed.tag.resize(Seal::kTagBytes);  // what a receiver takes for one is always so long
        break;
      case 3:  // the header's last byte becomes the first that is hidden
        if (changed.header.empty()) return;
        changed.sealed.insert(changed.sealed.begin(), changed.header.back());
        changed.header.pop_back();
        break;
      case 4:  // the tag and what is hidden change places
        if (changed.sealed.size() < Seal::kTagBytes) return;
        std::swap_ranges(changed.tag.begin(), changed.tag.end(), changed.sealed.begin());
        break;
    }
    Refuse(changed);
  }

  void ArriveOutOfOrder() {
    const Record* const record = Some();
    if (record != nullptr && record->number != in_.records()) Refuse(*record);
  }

  void ArriveFromElsewhere() {
    if (!other_use_) {
      other_use_.emplace(Seal::Role::kEncrypts, secret_, "weft 1 server batches", records_per_key_);
    }
    SealOne(*other_use_, other_use_->records());
  }

  // IsRecordAt() knows a record of this key at its distance alone, and changes nothing.
  void LookElsewhere() {
    const Record* const record = Some();
    if (record == nullptr) return;
    const auto there = static_cast<int64_t>(record->number - in_.records());
    const uint8_t how = input_.U8();
    const int64_t distance = how < 128   ? there
                             : how < 250 ? there + how - 190
                                         : static_cast<int64_t>(input_.U64());
    Record looked_at = *record;
    if (input_.Below(4) == 3) Change(&looked_at.sealed, input_);
    const bool is_key_in_use =
        record->number / records_per_key_ == in_.records() / records_per_key_;
    const bool is_there = distance == there && is_key_in_use && IsSame(*record, looked_at);
    const uint64_t before = in_.records();
    std::vector<std::byte> opened(looked_at.sealed.size());
    WEFT_CHECK(in_.IsRecordAt(distance, looked_at.header, looked_at.sealed, looked_at.tag,
                              opened.data()) == is_there);
    WEFT_CHECK(in_.records() == before);
    if (is_there) WEFT_CHECK(opened == record->plain);
  }

  FuzzInput& input_;
  const LinkSecret secret_;
  const uint64_t records_per_key_;
  Seal out_;
  Seal in_;
  std::optional<Seal> other_use_;   // to make one takes as long as many records
  std::vector<Record> remembered_;  // by number
};

void Run(FuzzInput input) {
  LinkSecret secret = {};
  secret[0] = std::byte{input.U8()};
  Direction direction(&input, secret, "weft 1 client batches", 1 + input.Below(8));
  for (int i = 0; i < kMostEvents && input.more(); ++i) direction.Happen();
  direction.ArriveAll();
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::Run(weft::FuzzInput(data, size));
  return 0;
}
