// What a client saw of one Get, Put or Delete: the unit of a history.
//
// A history says when each operation was invoked and when it returned, and what with. Between the
// two it took effect, at one moment; nobody saw when. A checker (checker.h) finds out whether there
// can be such moments at all.
//
// Threads:  a value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/clock.h"

namespace verify {

enum class Kind : uint8_t { kGet = 1, kPut, kDelete };

// What a record holds is told apart by a number. Writers number their values anew each time:
// a reader of a number then says which Put it saw.
using Value = uint64_t;
inline constexpr Value kAbsent = 0;  // there is no record; no Put writes it

// What a Put or a Delete said about the record before.
enum class Before : uint8_t { kNotSaid = 1, kThere, kAbsent };

inline constexpr uint64_t kNeverReturned = weft::kNever;

struct Operation {
  Kind kind = Kind::kGet;
  uint64_t key = 0;
  Value value = kAbsent;  // what a Put wrote, what a Get saw
  Before before = Before::kNotSaid;
  uint64_t invoked_ns = 0;
  uint64_t returned_ns = kNeverReturned;  // kNeverReturned: it may have happened, or may yet
  uint32_t lane = 0;                      // who

  bool returned() const { return returned_ns != kNeverReturned; }
  bool writes() const { return kind != Kind::kGet; }

  bool operator==(const Operation&) const = default;
};

using History = std::vector<Operation>;

// "lane 3  Put 17 (created)   1203.114 .. 1250.002 us", times counted from `start_ns`.
std::string Describe(const Operation& operation, uint64_t start_ns);

}  // namespace verify
