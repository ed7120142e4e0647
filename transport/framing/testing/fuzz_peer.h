// The peer of a connection that is fuzzed: it makes batches, of frames that are mostly right, and
// grants. The same bytes of input make the same batches, on which corpora rely.
//
// It may seal all that it sends, or large messages alone; and its batches may be changed on their
// way, by somebody who has no key.
//
// Threads: one. Lifetime: input and domain outlive it, and so do the regions that it knows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "core/testing/fuzz_input.h"
#include "transport/framing/batch.h"
#include "transport/framing/seal.h"
#include "transport/framing/testing/fuzz_link.h"
#include "transport/leases/grant_message.h"
#include "transport/link.h"

namespace weft {

class FuzzPeer {
 public:
  static constexpr size_t kMemoryBytes = 256;  // of all that one side lets the other reach
  static constexpr uint32_t kFirstSequence = ~uint32_t{0} - 1;  // it wraps soon
  static constexpr std::byte kInLarge{'L'};  // all that its sealed large messages have in them

  FuzzPeer(FuzzInput* input, FuzzDomain* domain) : input_(*input), domain_(*domain) {}

  // What the connection has told it, and what it has found out.
  uint32_t connection = 0;  // its index
  uint32_t token = 0;
  uint32_t other_connection = 0;  // whose batches are none of its business
  const Region* atomic_region = nullptr;
  const Region* sealed_region = nullptr;
  std::optional<ConnectionSeal> seal;  // none: it seals nothing
  bool seals_batches = false;

  static void Append(std::vector<std::byte>& batch, FrameKind kind, ByteSpan payload) {
    const size_t at = batch.size();
    batch.resize(at + FrameBytes(payload.size()));
    EncodeFrameHeader(&batch[at], static_cast<uint32_t>(payload.size()), kind);
    std::copy(payload.begin(), payload.end(),
              batch.begin() + static_cast<ptrdiff_t>(at + kFrameHeaderBytes));
  }

  // The next batch, before it is sealed.
  std::vector<std::byte> MakeBatch() {
    const uint8_t how = input_.U8();
    std::vector<std::byte> batch(kBatchHeaderBytes);
    const uint32_t frames = how % 8;
    for (uint32_t i = 0; i < frames; ++i) AppendFrame(batch);
    BatchHeader header = {connection, token, static_cast<uint16_t>(how / 8 % 4),
                          static_cast<uint16_t>(frames), sequence_++};
    if (how / 32 == 7) Spoil(&batch, &header);
    if (batch.size() >= kBatchHeaderBytes) EncodeBatchHeader(batch.data(), header);
    const size_t most = kFuzzSlotBytes - (seal.has_value() ? Seal::kTagBytes : 0);
    if (batch.size() > most) batch.resize(most);
    return batch;
  }

  // REQUIRES: seals_batches.
  void SealBatch(std::vector<std::byte>* batch) {
    if (batch->size() < kBatchHeaderBytes) return;  // the peer cuts it where it likes
    std::byte tag[Seal::kTagBytes];
    const MutableByteSpan frames = MutableByteSpan(*batch).subspan(kBatchHeaderBytes);
    seal->batches_out->Encrypt(ByteSpan(*batch).first(kBatchHeaderBytes), frames, frames.data(),
                               tag);
    batch->insert(batch->end(), tag, tag + sizeof(tag));
    sent_.push_back(*batch);
  }
  // A batch that was sealed never came: who sends it later does not send it again.
  void Forget(const std::vector<std::byte>& batch) {
    if (!sent_.empty() && sent_.back() == batch) sent_.pop_back();
  }
  // What somebody without a key makes of a batch.
  std::vector<std::byte> ChangeOnItsWay(const std::vector<std::byte>& batch) {
    std::vector<std::byte> changed = batch;
    switch (input_.Below(4)) {
      case 0:
        if (!changed.empty()) changed[input_.U16() % changed.size()] ^= std::byte{input_.U8()};
        break;
      case 1:
        changed.resize(std::min<size_t>(changed.size(), input_.U16() % kFuzzSlotBytes));
        break;
      case 2:  // an earlier one again
        if (sent_.size() > 1) changed = sent_[input_.U8() % (sent_.size() - 1)];
        break;
      case 3:  // an earlier one, in this one's place
        if (sent_.size() > 1 && changed.size() >= kBatchHeaderBytes) {
          changed = sent_[input_.U8() % (sent_.size() - 1)];
          std::copy_n(batch.begin(), kBatchHeaderBytes, changed.begin());
        }
        break;
    }
    return changed;
  }

  // `handle`: of what the connection's side has exported.
  std::vector<std::byte> MakeGrant(const RegionHandle& handle) {
    GrantMessage message;
    const uint64_t ask = input_.Below(4);
    const uint64_t lease = input_.Number();
    switch (input_.Below(9)) {
      case 0:
        message = GrantResolve{ask, kMinLeaseNs, 0, handle};
        break;
      case 1:
        message = GrantGranted{ask, lease, kMinLeaseNs, {7, 0, kMemoryBytes}, kAllRights};
        break;
      case 2:
        message = GrantRefused{ask, absl::StatusCode::kPermissionDenied, 0, ""};
        break;
      case 3:
        message = GrantRenew{lease, kMinLeaseNs};
        break;
      case 4:
        message = GrantRenewed{lease, kMinLeaseNs};
        break;
      case 5:
        message = GrantReturn{lease};
        break;
      case 6:
        message = GrantEnded{lease, absl::StatusCode::kAborted, 0};
        break;
      case 7:
        message = GrantDerive{ask, 0, 8, 0, kMayRead, handle};
        break;
      case 8:
        message = GrantDerived{ask, handle};
        break;
    }
    const GrantBytes encoded = EncodeGrant(message);
    std::vector<std::byte> bytes(encoded.bytes().begin(), encoded.bytes().end());
    if (input_.Below(4) == 3) bytes[input_.U8() % bytes.size()] ^= std::byte{input_.U8()};
    return bytes;
  }

 private:
  void AppendFrame(std::vector<std::byte>& batch) {
    std::byte payload[64] = {};
    switch (input_.Below(seals_batches ? 14 : seal.has_value() ? 10 : 8)) {
      case 8:
      case 9:
        return AppendSealedOffer(batch);
      case 10:
      case 11:
      case 12:
      case 13:
        return AppendTransfer(batch);
      case 0:
        EncodeLargeOffer(payload, {Next(&offers_), 7, input_.Number(), input_.Number()});
        return Append(batch, FrameKind::kLargeOffer, ByteSpan(payload).first(LargeOffer::kBytes));
      case 1:
        EncodeLargeDone(payload, {Next(&dones_), input_.Below(8) / 7});
        return Append(batch, FrameKind::kLargeDone, ByteSpan(payload).first(LargeDone::kBytes));
      case 2: {
        RemoteSpan word = {input_.Number()};
        if (atomic_region != nullptr && word.key < 192) word = atomic_region->remote();
        EncodeRequest(payload,
                      {Next(&requests_), static_cast<RequestKind>(input_.Below(5)), word.key,
                       word.offset + input_.Number(), input_.Number(), input_.Number()});
        return Append(batch, FrameKind::kRequest, ByteSpan(payload).first(Request::kBytes));
      }
      case 3:
        EncodeReply(payload, {Next(&replies_), input_.Number(),
                              static_cast<ReplyStatus>(input_.Below(8) / 6)});
        return Append(batch, FrameKind::kReply, ByteSpan(payload).first(Reply::kBytes));
      case 4: {  // any kind, any payload
        const auto kind = static_cast<FrameKind>(input_.U8());
        return Append(batch, kind, input_.Bytes(input_.Below(64)));
      }
      default:
        return Append(batch, FrameKind::kMessage, input_.Bytes(input_.Below(40)));
    }
  }
  // A large message that is there to be read as it was sealed, or changed.
  void AppendSealedOffer(std::vector<std::byte>& batch) {
    std::byte payload[LargeOffer::kSealedBytes] = {};
    std::vector<std::byte> message(1 + 8 * input_.Below(200), kInLarge);
    const uint64_t key = kFirstLargeKey + domain_.peer_memory.size();
    EncodeLargeOffer(payload, {Next(&offers_), key, 0, message.size()});
    seal->large_out.Encrypt({}, message, message.data(), payload + LargeOffer::kBytes);
    if (input_.Below(8) == 7) message[input_.U16() % message.size()] ^= std::byte{input_.U8()};
    if (input_.Below(8) == 7) payload[input_.Below(sizeof(payload))] ^= std::byte{input_.U8()};
    domain_.peer_memory[key] = std::move(message);
    Append(batch, FrameKind::kLargeOffer, payload);
  }
  // A frame of sealed one-sided operations: the peer's, or an answer to this side's.
  void AppendTransfer(std::vector<std::byte>& batch) {
    std::byte payload[64] = {};
    const ByteSpan fields(payload);
    const bool knows_key = input_.Below(8) != 7 && sealed_region != nullptr;
    const RemoteSpan known = knows_key ? sealed_region->remote() : RemoteSpan{input_.Number()};
    switch (input_.Below(4)) {
      case 0:
        StoreLe64(payload, Next(&transfers_));
        StoreLe64(payload + 8, known.key);
        StoreLe64(payload + 16, known.offset + input_.Number());
        StoreLe64(payload + 24, input_.Number());
        return Append(batch, FrameKind::kSealedRead, fields.first(32));
      case 1: {
        const size_t bytes = input_.Below(33);
        // Goes on with one that is not whole, or begins another.
        if (write_left_ == 0) write_offset_ = known.offset + input_.Number();
        const uint64_t id = write_left_ > 0 ? transfers_ - 1 : Next(&transfers_);
        const uint64_t left = input_.Below(8) == 7 ? input_.Number()
                              : write_left_ > 0    ? write_left_ - std::min(write_left_, bytes)
                                                   : 8 * input_.Below(4);
        StoreLe64(payload, id);
        StoreLe64(payload + 8, known.key);
        StoreLe64(payload + 16, write_offset_);
        StoreLe64(payload + 24, left);
        write_offset_ += bytes;
        write_left_ = left;
        return Append(batch, FrameKind::kSealedWrite, fields.first(32 + bytes));
      }
      case 2:
        StoreLe64(payload, input_.Below(8));
        return Append(batch, FrameKind::kSealedData, fields.first(8 + input_.Below(41)));
      case 3:
        StoreLe64(payload, input_.Below(8));
        StoreLe64(payload + 8, input_.Below(8) / 7);
        return Append(batch, FrameKind::kSealedEnd, fields.first(16));
    }
  }
  // The next number, or now and then another one.
  uint64_t Next(uint64_t* counter) {
    const uint8_t how = input_.U8();
    return how < 240 ? (*counter)++ : *counter + how - 248;
  }

  // Something is wrong with it.
  void Spoil(std::vector<std::byte>* batch, BatchHeader* header) {
    switch (input_.Below(8)) {
      case 0:
        header->connection = input_.U32();
        break;
      case 1:
        header->token ^= input_.U8();
        break;
      case 2:
        header->sequence += input_.U8();
        break;
      case 3:
        header->credits = input_.U16();
        break;
      case 4:
        header->frames = input_.U16();
        break;
      case 5:
        batch->resize(std::min<size_t>(batch->size(), input_.U8()));
        break;
      case 6:
        if (batch->size() > kBatchHeaderBytes) {
          const size_t at = kBatchHeaderBytes + input_.U16() % (batch->size() - kBatchHeaderBytes);
          (*batch)[at] = static_cast<std::byte>(input_.U8());
        }
        break;
      case 7:
        header->connection = other_connection;
        break;
    }
  }

  static constexpr uint64_t kFirstLargeKey = 1'000;  // keys of what it offers, sealed

  FuzzInput& input_;
  FuzzDomain& domain_;
  std::vector<std::vector<std::byte>> sent_;  // as it left; no more than there are events
  uint32_t sequence_ = kFirstSequence;
  uint64_t offers_ = 0;
  uint64_t dones_ = 0;
  uint64_t requests_ = 0;
  uint64_t replies_ = 0;
  uint64_t transfers_ = 0;
  uint64_t write_offset_ = 0;
  uint64_t write_left_ = 0;
};

}  // namespace weft
