// When what a turn queues leaves in parts, and how large these are.
//
// What a turn queues leaves in one batch, at its end. With many calls outstanding that has a stable
// state which nobody wants: all of them in one batch that goes to and fro, and one side idles while
// the other works. A side can see it: a large batch comes, and with it every credit, so its sender
// has taken all that was sent to it, and waits. Then what this batch brings about leaves in parts,
// each behind the last of so many messages, however few answers these have: the peer begins with
// the first while this side makes the next. From then on each large batch is answered by one of its
// own, so that parts stay parts; as the peer has not got all of them when it sends one, none is
// parted again. Nothing here depends on what the peer does.
//
//   shm, calls of 64 B, millions a second, outstanding:     16     32     64
//   all in one batch                                       5.2    6.3    6.8
//   in parts, answered together where they meet            5.8    7.6    7.9
//   in parts, each answered by itself                     10.2   11.4   12.2
//
// A part costs a batch more, so a few messages stay whole; and so does everything on paths where to
// send costs as much as dozens of messages, or where a credit in the midst of a turn would run
// ahead of its receive (LinkDomain::frames_to_part()).
//
// Threads: plain functions and values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/framing/batch.h"

namespace weft {

// What a connection has sent last: how long its messages are.
struct SentBatch {
  uint32_t bytes = 0;  // with its header
  uint32_t frames = 0;
};

// Half and one more: so both hold all of them also where lengths vary a little. Of a few dozen, two
// fifths: then three go round, one at each side and one on its way, which is a quarter faster; with
// 64 it is no faster, and costs 15 instructions for each call.
constexpr uint32_t FramesOfPart(uint32_t frames) {
  constexpr uint32_t kManyFrames = 48;
  return (frames >= kManyFrames ? frames / 2 : frames * 2 / 5) + 1;
}

// Whether a batch of so many is answered by a batch of its own: the last part of three is a fifth.
constexpr bool IsPart(uint32_t frames, uint32_t frames_to_part) {
  return frames_to_part != 0 && frames * 5 >= frames_to_part;
}

// How far a slot is filled, header included, while the messages of a batch of `frames` are taken,
// each answered by one of the usual length: 1..`usual_bytes`.
constexpr uint32_t PartBytes(uint32_t frames, SentBatch last, uint32_t usual_bytes) {
  if (last.frames == 0) return usual_bytes;
  const uint64_t bytes = uint64_t{last.bytes - kBatchHeaderBytes} * FramesOfPart(frames);
  const uint64_t whole_frames =
      (bytes / last.frames + kFrameAlignment - 1) & ~uint64_t{kFrameAlignment - 1};
  return static_cast<uint32_t>(std::min<uint64_t>(kBatchHeaderBytes + whole_frames, usual_bytes));
}

}  // namespace weft
