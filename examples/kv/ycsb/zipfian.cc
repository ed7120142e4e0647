#include "examples/kv/ycsb/zipfian.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace kv::ycsb {
namespace {

// Below this, terms are added one by one. The formula's first left-out term is then about
// theta^3 / (720 * kExactTerms^(theta + 3)): smaller than the rounding of the sum itself.
constexpr uint64_t kExactTerms = 1000;

double Power(double base, double theta) { return std::pow(base, -theta); }

// The sum of k^-theta for k = from + 1..to.
double TailOfZeta(double from, double to, double theta) {
  const double integral = (std::pow(to, 1 - theta) - std::pow(from, 1 - theta)) / (1 - theta);
  const double ends = (Power(to, theta) - Power(from, theta)) / 2;
  const double slope = theta / 12 * (Power(from, theta + 1) - Power(to, theta + 1));
  return integral + ends + slope;
}

}  // namespace

double Zeta(uint64_t n, double theta) {
  const uint64_t exact = std::min(n, kExactTerms);
  double sum = 0;
  for (uint64_t k = exact; k >= 1; --k) sum += Power(static_cast<double>(k), theta);
  if (n == exact) return sum;
  return sum + TailOfZeta(static_cast<double>(exact), static_cast<double>(n), theta);
}

Zipfian::Zipfian(uint64_t items, double theta)
    : theta_(theta), second_(1 + std::pow(0.5, theta)), items_(items), zeta_(Zeta(items, theta)) {
  WEFT_CHECK(items >= 1);
  WEFT_CHECK(theta > 0 && theta < 1);
  ComputeEta();
}

// So that the curve starts where the two most popular items end.
void Zipfian::ComputeEta() {
  const double n = static_cast<double>(items_);
  eta_ = items_ <= 2 ? 0 : (1 - std::pow(2 / n, 1 - theta_)) / (1 - second_ / zeta_);
}

void Zipfian::GrowTo(uint64_t items) {
  WEFT_CHECK(items >= items_);
  if (items == items_) return;
  zeta_ =
      items == items_ + 1 ? zeta_ + Power(static_cast<double>(items), theta_) : Zeta(items, theta_);
  items_ = items;
  ComputeEta();
}

uint64_t Zipfian::Next(weft::Random& random) const {
  const double u = random.UniformDouble();
  const double weight = u * zeta_;
  if (weight < 1 || items_ == 1) return 0;
  if (weight < second_ || items_ == 2) return 1;
  const double rank = static_cast<double>(items_) * std::pow(eta_ * u - eta_ + 1, 1 / (1 - theta_));
  return std::min(static_cast<uint64_t>(rank), items_ - 1);
}

uint64_t FnvHash(uint64_t number) {
  constexpr uint64_t kOffsetBasis = 0xcbf29ce484222325;
  constexpr uint64_t kPrime = 1'099'511'628'211;
  uint64_t hash = kOffsetBasis;
  for (int byte = 0; byte < 8; ++byte, number >>= 8) {
    hash ^= number & 0xff;
    hash *= kPrime;
  }
  return hash;
}

}  // namespace kv::ycsb
