// What perf measures: cells, each a pattern of traffic with messages of one size, so many of them
// outstanding.
//
//   unary         requests with that many bytes, each answered by a reply with as many. Raw: two
//                 bare messages; Weft: a call, protobuf both ways. Counted are pairs.
//   coroutine     unary, by a coroutine that awaits each call; alone only. Not raw's.
//   stream        messages of one call's stream, protobuf. With one outstanding, there and back;
//                 with more, in one direction, confirmed when half of the outstanding have been
//                 read. Counted are pairs and messages. Not raw's.
//   messages      the same in one direction over a Connection, without calls (raw: bare sends).
//                 With one outstanding, the way back is an empty confirmation.
//   bulk          calls whose reply carries that many bytes of weft.Bulk: the client lends memory,
//                 the server writes there and then replies. Raw: the same two messages and the same
//                 one-sided write, by hand.
//   bulk_checked  bulk with a CRC32C that the server makes and the client checks. Not raw's.
//   read, write   one-sided. The clock of writes stops when the peer has confirmed that all of them
//                 are in its memory; the time of a single write is that of its completion.
//
// With one outstanding, each is timed by itself; with more, they are counted.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"

namespace weft::bench {

enum class Pattern : uint8_t {
  kUnary = 1,
  kCoroutine = 2,
  kStream = 3,
  kMessages = 4,
  kBulk = 5,
  kBulkChecked = 6,
  kRead = 7,
  kWrite = 8,
};

struct Cell {
  Pattern pattern = Pattern::kUnary;
  uint32_t bytes = 64;
  uint32_t outstanding = 1;
};

inline auto AsTuple(const Cell& cell) {
  return std::tuple(cell.pattern, cell.bytes, cell.outstanding);
}
inline bool operator==(const Cell& a, const Cell& b) { return AsTuple(a) == AsTuple(b); }
inline bool operator<(const Cell& a, const Cell& b) { return AsTuple(a) < AsTuple(b); }

// Where one-sided reads and writes go, and what bulk and large messages are sent from: places of
// that size, one after the other, until this much memory is full. More than a cache near a core
// holds.
inline constexpr uint32_t kRegionBytes = 16 << 20;
// What a connection allows of calls and operations by default (ChannelOptions, LinkOptions), both.
inline constexpr uint32_t kMaxOutstanding = 128;

// How many messages in one direction are confirmed at once: so that the other half is on the way
// while the confirmation is.
inline uint32_t ConfirmEvery(const Cell& cell) {
  return cell.outstanding < 2 ? 1 : cell.outstanding / 2;
}

std::string_view NameOf(Pattern pattern);  // "bulk_checked"
std::string SizeName(uint32_t bytes);      // "300B", "4KiB", "1MiB"
std::string NameOf(const Cell& cell);      // "unary.64B.x1"
absl::StatusOr<Cell> CellNamed(std::string_view name);

// Why nobody can measure such a cell: one sentence; "" for a good one.
std::string WhyNoCell(const Cell& cell);

// The matrix: every pattern with every size and number outstanding, also those that make no sense.
std::vector<Cell> AllCells();

// What --only asks for: "PATTERN[:BYTES[:OUTSTANDING]]", separated by commas. "*", and what is left
// out, stands for all of the matrix; a number need not be in it ("unary:128:16").
// INVALID_ARGUMENT names what is wrong. Each cell once, in the order of the matrix.
absl::StatusOr<std::vector<Cell>> CellsOnly(std::string_view filters);

}  // namespace weft::bench
