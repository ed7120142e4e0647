// What travels on the data socket of a tcp link, little-endian: from the side that connected a join
// (sockets/join.h), from the other its answer, then frames.
//
//   welcome, 8 bytes, the answer: kWelcomeMagic
//
//   frame, 16 bytes of header, and a payload that is padded with zeros to a multiple of 8:
//     0  4  length     of the payload, without its padding
//     4  1  kind       TcpFrameKind
//     5  1  flags      by kind
//     6  2  reserved   0
//     8  4  sequence   0, 1, 2, ... in each direction, modulo 2^32
//    12  4  operation  the initiator's number of a one-sided operation; 0 in a batch
//
//   kind   payload                                              flags
//   batch  a batch of the framing layer, 1..slot_bytes          0
//   read   1..kMaxBatchTransfers spans {key 8, offset 8,        0
//          length 8}
//   data   1..kPieceBytes of what a read asked for, one span    kTcpLast: these are the last, and
//          behind the other                                     the read has succeeded
//   write  {key 8, offset 8}, then 1..kPieceBytes               kTcpLast: of the operation
//   end    nothing                                              kTcpRefused, or 0: it has succeeded
//
// The target ends a read by `data` with kTcpLast, or by `end`, which alone says that it has failed;
// a write by `end`, when all of its bytes are in its memory. What came before an `end` that says
// kTcpRefused is worth nothing: memory that is taken away during a transfer is sent as zeros.
//
// Threads: plain functions and values. Errors: decoding trusts nothing; what is not checked here
// depends on the state of a link, and is checked there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bytes.h"
#include "transport/operation.h"

namespace weft {

enum class TcpFrameKind : uint8_t { kBatch = 1, kRead = 2, kData = 3, kWrite = 4, kEnd = 5 };

inline constexpr uint8_t kTcpLast = 1;     // of kData and kWrite
inline constexpr uint8_t kTcpRefused = 1;  // of kEnd

inline constexpr uint64_t kWelcomeMagic = 0x01010A4A46455789;  // kJoinMagic, but for the last byte
inline constexpr size_t kWelcomeBytes = 8;

inline constexpr size_t kTcpHeaderBytes = 16;
inline constexpr size_t kTcpSpanBytes = 24;
inline constexpr size_t kTcpWriteHeadBytes = 16;  // key and offset, in front of the bytes
inline constexpr uint32_t kMostReadBytes = kTcpSpanBytes * kMaxBatchTransfers;  // payload of a read

// What a large transfer is cut into, in bytes. A batch waits for one that has begun, 20 us of one
// processor; each costs its receiver a system call. Half of it was a tenth slower.
inline constexpr uint32_t kPieceBytes = 128 << 10;

// One-sided ranges under way on a link, asked for by either side. The initiator keeps to it. The
// target counts those that are read, and ends the link of a peer that asks for more; writes that
// are not taken are bounded by their ends (TcpOutput::kMaxSmallBytes). Above what a connection may
// have outstanding (LinkOptions::max_outstanding_operations).
inline constexpr uint32_t kMaxRangesOfLink = 1024;

struct TcpHeader {
  uint32_t length = 0;
  TcpFrameKind kind = TcpFrameKind::kBatch;  // may be a number that has no name
  uint8_t flags = 0;
  uint16_t reserved = 0;
  uint32_t sequence = 0;
  uint32_t operation = 0;
};

// 0..7 bytes.
constexpr uint32_t TcpPadding(uint64_t bytes) { return static_cast<uint32_t>(-bytes & 7); }

// REQUIRES: kTcpHeaderBytes of room at `to`.
inline void EncodeTcpHeader(std::byte* to, TcpFrameKind kind, uint8_t flags, uint32_t length,
                            uint32_t sequence, uint32_t operation) {
  StoreLe64(to,
            uint64_t{length} | uint64_t{static_cast<uint8_t>(kind)} << 32 | uint64_t{flags} << 40);
  StoreLe64(to + 8, uint64_t{sequence} | uint64_t{operation} << 32);
}

// REQUIRES: kTcpHeaderBytes at `from`.
inline TcpHeader DecodeTcpHeader(const std::byte* from) {
  const uint64_t first = LoadLe64(from);
  return {static_cast<uint32_t>(first),
          static_cast<TcpFrameKind>(static_cast<uint8_t>(first >> 32)),
          static_cast<uint8_t>(first >> 40),
          static_cast<uint16_t>(first >> 48),
          LoadLe32(from + 8),
          LoadLe32(from + 12)};
}

// What is wrong with a header whatever the link's state is; null: nothing. `slot_bytes`: the
// largest batch.
constexpr const char* CheckTcpHeader(const TcpHeader& header, uint32_t slot_bytes) {
  if (header.reserved != 0) return "its reserved bits are not 0";
  const auto within = [&header](uint64_t least, uint64_t most) {
    return header.length >= least && header.length <= most;
  };
  switch (header.kind) {
    case TcpFrameKind::kBatch:
      if (header.flags != 0 || header.operation != 0) return "a batch has no flags or operation";
      return within(1, slot_bytes) ? nullptr : "a batch of this length is not allowed";
    case TcpFrameKind::kRead:
      if (header.flags != 0) return "a read has no flags";
      return header.length % kTcpSpanBytes == 0 && within(kTcpSpanBytes, kMostReadBytes)
                 ? nullptr
                 : "a read of so many spans is not allowed";
    case TcpFrameKind::kData:
      if ((header.flags & ~kTcpLast) != 0) return "unknown flags";
      return within(1, kPieceBytes) ? nullptr : "a piece of this length is not allowed";
    case TcpFrameKind::kWrite:
      if ((header.flags & ~kTcpLast) != 0) return "unknown flags";
      return within(kTcpWriteHeadBytes + 1, kTcpWriteHeadBytes + kPieceBytes)
                 ? nullptr
                 : "a piece of this length is not allowed";
    case TcpFrameKind::kEnd:
      if ((header.flags & ~kTcpRefused) != 0) return "unknown flags";
      return header.length == 0 ? nullptr : "an end has no payload";
  }
  return "its kind is unknown";
}

inline void EncodeTcpSpan(std::byte* to, const RemoteSpan& span) {
  StoreLe64(to, span.key);
  StoreLe64(to + 8, span.offset);
  StoreLe64(to + 16, span.length);
}

inline RemoteSpan DecodeTcpSpan(const std::byte* from) {
  return {LoadLe64(from), LoadLe64(from + 8), LoadLe64(from + 16)};
}

}  // namespace weft
