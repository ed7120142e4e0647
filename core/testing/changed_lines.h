// Which cache lines of this process's memory two pieces of work both change, whoever carries them
// out: what engines share that should share nothing, found without a clock.
//
//   ChangedLines lines;
//   for (int round = 0; round < 5; ++round) {
//     lines.Begin();
//     OneWork();     // as many times as it takes to do everything once
//     lines.Next();
//     OtherWork();
//     lines.End();
//   }
//   EXPECT_EQ(lines.shared(), std::vector<std::string>());
//
// A line counts if both have changed it in each of the rounds: so what a timer, or a thread that is
// falling asleep, changes now and then is not taken for it. What is looked at is all memory that
// may be written and is present when this is made: so everything has run before, and its memory is
// there. It is compared by its bytes: a word that has its old value again when the work has ended
// (a lock, a count of what is under way) is not seen, unless something is still under way then; and
// one that is read only is not meant.
//
// Memory that is given back to the kernel in between is not looked at any more.
//
// Threads: one; all others rest during Begin(), Next() and End(), which write to no memory that
// was there before. Not under sanitizers, which keep memory of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::test {

class ChangedLines {
 public:
  // Empty, or why it cannot look here: some containers hide what the kernel says of memory.
  static std::string WhyNot();

  // REQUIRES: WhyNot() is empty.
  ChangedLines();
  ~ChangedLines();
  ChangedLines(const ChangedLines&) = delete;
  ChangedLines& operator=(const ChangedLines&) = delete;

  void Begin();
  void Next();
  void End();

  // Of each line that both have changed in every round: its address and mapping, and which of its
  // words changed last.
  std::vector<std::string> shared() const;
  // Lines that the first has changed in every round; the second. None: it did nothing, or its
  // memory is not looked at.
  size_t of_first() const { return CountOf(kFirst); }
  size_t of_second() const { return CountOf(kSecond); }

 private:
  // Of a line, over all rounds so far.
  static constexpr uint8_t kFirst = 1;
  static constexpr uint8_t kSecond = 2;

  struct Page {
    uintptr_t address;
    size_t mapping;  // of mappings_
  };

  // Compares all pages with how they were, notes what changed as `who`'s (0: nobody's), and keeps
  // them as they are.
  void Look(uint8_t who);
  size_t CountOf(uint8_t who) const;

  int memory_ = -1;  // /proc/self/mem: of a page that is not there any more it says so
  std::vector<std::string> mappings_;
  std::vector<Page> pages_;
  // Outside of what is looked at: made when it is known what that is.
  std::byte* now_ = nullptr;     // a page as it is
  std::byte* copies_ = nullptr;  // of the pages, one behind the other
  uint8_t* changed_ = nullptr;   // of each line: in this round, by whom
  uint8_t* always_ = nullptr;    // in all rounds
  uint8_t* words_ = nullptr;     // of each line, a bit for each word that changed when it was seen
  size_t mapped_bytes_ = 0;
};

}  // namespace weft::test
