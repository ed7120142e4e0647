// Zipf-distributed numbers: of n items, the k-th most popular is drawn with a probability
// proportional to 1 / k^theta.
//
// Drawn in constant time by the method of J. Gray, P. Sundaresan, S. Englert, K. Baclawski and
// P. Weinberger, "Quickly Generating Billion-Record Synthetic Databases", SIGMOD 1994. It is exact
// for the two most popular items and follows the continuous curve for the others.
//
// Threads:  one thread at a time.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace kv::ycsb {

// YCSB's constant. 0 would be uniform; the method needs less than 1.
inline constexpr double kZipfianTheta = 0.99;

// The sum of 1 / k^theta for k = 1..n. Constant time: the first terms are added, the others come
// from the Euler-Maclaurin formula, to about 1e-12 of the exact value.
double Zeta(uint64_t n, double theta);

class Zipfian {
 public:
  // REQUIRES: items >= 1, 0 < theta < 1.
  explicit Zipfian(uint64_t items, double theta = kZipfianTheta);

  // 0 is the most popular item, items() - 1 the least.
  uint64_t Next(weft::Random& random) const;

  // More items from now on; those there are keep their rank.
  // REQUIRES: items >= items().
  void GrowTo(uint64_t items);

  uint64_t items() const { return items_; }
  // With which probability Next() returns the most popular item.
  double top_probability() const { return 1 / zeta_; }

 private:
  void ComputeEta();

  const double theta_;
  const double second_;  // 1 + 1/2^theta: the weight of the two most popular items
  uint64_t items_;
  double zeta_;
  double eta_;
};

// FNV-1a over the eight bytes of `number`, little-endian first: spreads popular items over all
// keys. (G. Fowler, L. Noll and P. Vo.)
uint64_t FnvHash(uint64_t number);

}  // namespace kv::ycsb
