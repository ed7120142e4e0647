#include "rpc/client/server_choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft {
namespace {

// Spreads what FNV-1a leaves alike in its high bits: the end of splitmix64 (core/random.h).
uint64_t Mix(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

// The point of a client: the bits of its number in reverse order, as a part of 2^32 (J. van der
// Corput, "Verteilungsfunktionen", 1935).
uint32_t Reversed(uint32_t number) {
  uint32_t reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= ((number >> bit) & 1) << (31 - bit);
  return reversed;
}

}  // namespace

uint64_t ServerKeyOf(std::string_view key) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : key) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  hash = Mix(hash);
  return hash != 0 ? hash : 1;
}

void HashRing::Build(absl::Span<const std::string_view> addresses) {
  points_.clear();
  points_.reserve(addresses.size() * kPoints);
  for (size_t server = 0; server < addresses.size(); ++server) {
    const uint64_t first = ServerKeyOf(addresses[server]);
    for (uint64_t i = 0; i < kPoints; ++i) {
      points_.push_back((Mix(first + i) & ~uint64_t{0xFFFF}) | server);
    }
  }
  std::sort(points_.begin(), points_.end());
}

uint32_t HashRing::Find(uint64_t key) const {
  // A key of the program's own need not be a hash.
  const auto at = std::lower_bound(points_.begin(), points_.end(), Mix(key));
  return at == points_.end() ? 0 : static_cast<uint32_t>(at - points_.begin());
}

std::vector<uint32_t> SubsetOf(absl::Span<const std::string_view> addresses, uint32_t most,
                               uint32_t client_number) {
  std::vector<uint32_t> ring(addresses.size());
  std::iota(ring.begin(), ring.end(), 0);
  if (ring.size() <= most) return ring;
  std::vector<uint64_t> hashes;
  hashes.reserve(addresses.size());
  for (const std::string_view address : addresses) hashes.push_back(ServerKeyOf(address));
  std::sort(ring.begin(), ring.end(), [&](uint32_t a, uint32_t b) {
    return hashes[a] != hashes[b] ? hashes[a] < hashes[b] : addresses[a] < addresses[b];
  });
  const uint64_t first = (uint64_t{Reversed(client_number)} * ring.size()) >> 32;
  std::vector<uint32_t> part;
  part.reserve(most);
  for (uint32_t i = 0; i < most; ++i) part.push_back(ring[(first + i) % ring.size()]);
  std::sort(part.begin(), part.end());
  return part;
}

std::vector<uint32_t> LowRates(absl::Span<const SuccessCount> servers) {
  constexpr uint64_t kFewestAnswers = 50;  // of fewer, a rate says little: 1 failure is 2 points
  constexpr size_t kFewestServers = 5;     // of fewer, a deviation says nothing
  constexpr double kDeviations = 1.9;      // of a normal distribution, 3 % lie below
  constexpr double kLeastGap = 0.05;       // what is nearer to the mean is no trouble

  std::vector<uint32_t> counted;
  std::vector<double> rates;
  for (uint32_t i = 0; i < servers.size(); ++i) {
    const uint64_t answers = servers[i].ok + servers[i].failed;
    if (answers < kFewestAnswers) continue;
    counted.push_back(i);
    rates.push_back(static_cast<double>(servers[i].ok) / static_cast<double>(answers));
  }
  if (counted.size() < kFewestServers) return {};
  const auto count = static_cast<double>(rates.size());
  const double mean = std::accumulate(rates.begin(), rates.end(), 0.0) / count;
  double squares = 0;
  for (const double rate : rates) squares += (rate - mean) * (rate - mean);
  const double least = mean - std::max(kDeviations * std::sqrt(squares / count), kLeastGap);
  std::vector<uint32_t> low;
  for (size_t i = 0; i < counted.size(); ++i) {
    if (rates[i] < least) low.push_back(counted[i]);
  }
  return low;
}

}  // namespace weft
