// What arrives by the socket of a tcp link: frames are checked, and what they bring is placed.
//
// The link reads its socket into MakeRoom(): straight into the place of what comes next, where that
// is known and large, and behind it into the domain's buffer. Next() then takes what has been
// received, up to the next thing that somebody is to hear of:
//
//   const TcpInput::Room room = input.MakeRoom();
//   TcpInput::Received received = input.OnReceived(room, readv(..., room.begin(), room.count()));
//   while (!received.empty()) switch (input.Next(&received)) { ... }
//
// A batch is handed out where it was received. A frame that is not whole yet is kept: its head
// here, a batch or a request in a cell of its own, into which the rest is received. Bytes of reads
// and writes go to their place: of this side's reads into the local memory, of the peer's writes
// into the region, which is looked up again for each piece. What the peer asks for becomes work of
// the link's output: answers to its reads, ends of its writes.
//
//   what the next bytes are               body_
//   a frame                               kNone
//   the rest of a batch, or of a request  kFrame
//   data that a read has asked for        kData
//   bytes of a write, for a region        kWrite
//   bytes of a write that is refused      kNowhere
//
// Threads: the engine's. Lifetime: a member of its link; what it is made with outlives it. It calls
//   nobody back.
// Errors: DATA_LOSS for a peer that breaks the rules of tcp_frame.h.
// Invariants: a place of bytes is in local memory of an operation that is not over, in a region
//   that has not gone, or in a cell.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/block_memory.h"
#include "core/bytes.h"
#include "transport/tcp/tcp_frame.h"
#include "transport/tcp/tcp_operations.h"
#include "transport/tcp/tcp_output.h"
#include "transport/tcp/tcp_regions.h"
#include "transport/tcp/tcp_work.h"

namespace weft {

// What the sockets of one domain are read into: the buffer of all, and cells for frames that arrive
// in parts and are handed out whole, one for each link that is in the midst of one, at most.
class TcpReceiveMemory {
 public:
  // What one system call reads at most, in bytes: two pieces. It stays in a second-level cache.
  static constexpr size_t kBufferBytes = size_t{256} << 10;

  // `most_batch_bytes`: of the largest batch that a peer may send.
  explicit TcpReceiveMemory(uint32_t most_batch_bytes);

  uint32_t most_batch_bytes() const { return most_batch_bytes_; }
  std::byte* buffer() const { return buffer_; }
  // Empty: there is no memory.
  Block TakeCell();
  void GiveCell(Block cell);

 private:
  // So many are kept for the next; a process with more links in the midst of a frame allocates.
  static constexpr size_t kKeptCells = 16;

  const uint32_t most_batch_bytes_;
  const Block buffer_memory_;
  std::byte* const buffer_;  // its bytes
  std::vector<Block> free_cells_;
};

class TcpInput final : public TcpRegionUser {
 public:
  // Where the next bytes go.
  struct Room {
    // The place of what comes next; empty: it goes through the buffer.
    const iovec& place() const { return parts[0]; }
    const iovec& buffer() const { return parts[1]; }
    const iovec* begin() const { return place().iov_len > 0 ? &parts[0] : &parts[1]; }
    int count() const { return place().iov_len > 0 ? 2 : 1; }
    size_t bytes() const { return place().iov_len + buffer().iov_len; }
    // At the beginning: what others than this side may look at any time, TlsStream::Read()'s. That
    // is a region that the peer writes to. The place of an answer is its reader's, who is told when
    // all of it has come; the rest is this side's alone.
    size_t seen_bytes() const { return is_region ? place().iov_len : 0; }

    std::array<iovec, 2> parts;
    bool is_region = false;  // place() is in one
  };
  // What has been received, and not taken.
  struct Received {
    bool empty() const { return rest.empty() && placed == 0; }

    size_t placed = 0;  // bytes that are in their place
    ByteSpan rest;      // in the buffer, behind them
  };
  enum class Event : uint8_t {
    kNone = 1,         // there was nothing to tell
    kBatch = 2,        // batch()
    kBatchInCell = 3,  // batch(), as long as what TakeCell() gives
    kDone = 4,         // operation() is over, and has succeeded
    kRefused = 5,      // operation() is over: the peer does not grant it
    kBroken = 6,       // the peer broke the rules: error() says how
  };

  TcpInput(TcpReceiveMemory* memory, TcpRegions* regions, const TcpOperations* operations,
           TcpOutput* output)
      : memory_(memory), regions_(regions), operations_(operations), output_(output) {}
  ~TcpInput() { Clear(); }

  // Takes nothing more, and touches no memory any more.
  void Clear();

  Room MakeRoom() {
    if (body_ != Body::kNone || padding_ > 0) [[unlikely]]
      return MakeRoomInMidst();
    return RoomBehind(/*place=*/{}, head_bytes_);
  }
  // REQUIRES: bytes <= room.bytes(); nothing else was done here since MakeRoom().
  Received OnReceived(const Room& room, size_t bytes) {
    const size_t placed = std::min(bytes, room.place().iov_len);
    auto* const at = static_cast<std::byte*>(room.buffer().iov_base);
    if (head_bytes_ > 0) [[unlikely]]
      return WithHead(at, bytes);
    return {placed, {at, bytes - placed}};
  }
  // REQUIRES: something is left in *received. After kBroken nothing more may be taken.
  Event Next(Received* received);

  ByteSpan batch() const { return batch_; }
  TcpOperation* operation() const { return operation_; }
  const absl::Status& error() const { return error_; }
  // Whoever is given the batch may destroy this, and read on. Goes back by GiveCell().
  Block TakeCell() { return std::move(cell_); }

  // What the peer writes there is dropped from here on, and refused.
  void OnRegionGone(uint64_t key) override;

 private:
  enum class Body : uint8_t { kNone = 1, kFrame = 2, kData = 3, kWrite = 4, kNowhere = 5 };

  // The rest of a body is received into its place if it has so many bytes. Less is copied out of
  // the buffer: readv(2) takes 0.4 us more than recv(2), as long as to copy 4 KiB out of a cache
  // that is not near; out of a near one 16 KiB are copied in that time.
  static constexpr size_t kDirectBytes = 4 << 10;
  // Read behind a piece into the buffer, in bytes: the next piece is not to be copied out of there.
  static constexpr size_t kBehindPiece = 1 << 10;
  static constexpr size_t kMostHeadBytes = kTcpHeaderBytes + kTcpWriteHeadBytes;

  Room RoomBehind(MutableByteSpan place, size_t lead) const {
    const size_t end = in_transfer_ ? kBehindPiece : TcpReceiveMemory::kBufferBytes;
    return {{{{place.data(), place.size()}, {memory_->buffer() + lead, end - lead}}}};
  }
  Room MakeRoomInMidst() const;
  Received WithHead(std::byte* at, size_t bytes);
  Event TakeBody(ByteSpan* rest);
  Event TakeFrame(ByteSpan* rest);
  Event Keep(ByteSpan* head);
  Event BeginBody(const TcpHeader& header, const std::byte* payload);
  Event BeginData();
  Event BeginWrite(const std::byte* payload);
  MutableByteSpan Place() const;
  Event Advance(size_t bytes);
  Event FinishBody();
  Event OnRead(const TcpHeader& header, const std::byte* spans);
  Event OnEnd(const TcpHeader& header);
  Event FinishOperation(const TcpHeader& header, TcpOperation* operation);
  bool is_owed_too_much() const { return output_->small_bytes() > TcpOutput::kMaxSmallBytes; }
  TcpOperation* FindSent(uint32_t number) const;
  Event BreakRules(const TcpHeader& header, std::string_view what);

  TcpReceiveMemory* const memory_;
  TcpRegions* const regions_;
  const TcpOperations* const operations_;
  TcpOutput* const output_;

  ByteSpan batch_;
  TcpOperation* operation_ = nullptr;
  absl::Status error_;

  Body body_ = Body::kNone;
  uint8_t padding_ = 0;         // bytes to skip, behind the body
  uint8_t head_bytes_ = 0;      // of head_
  bool refused_ = false;        // the write, or a piece of it before
  bool in_transfer_ = false;    // the last frame was a piece, and more will come
  bool write_goes_on_ = false;  // its last piece has not come
  uint32_t sequence_ = 0;       // of the next frame
  uint32_t written_ = 0;        // the peer's number of the write
  TcpHeader header_;            // of the body
  uint64_t body_left_ = 0;
  std::byte* place_ = nullptr;                 // kFrame, kWrite: of the next byte
  uint64_t region_key_ = 0;                    // kWrite
  TcpOperation* read_ = nullptr;               // kData
  Block cell_;                                 // kFrame
  alignas(8) std::byte head_[kMostHeadBytes];  // of a frame that is not whole
};

}  // namespace weft
