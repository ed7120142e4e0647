// Which bucket a key belongs to, and its fingerprint there: the same on server and clients.
//
// The seed is the server's, new in each process, so that nobody can prepare keys that meet in one
// bucket. (A client knows it, and could: it harms only the speed of reads of that bucket.)
//
// Threads:  pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/bytes.h"

namespace kv::index {

inline uint64_t MixHash(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Eight bytes at a time, each mixed in by a multiplication to 128 bits. The odd constants are
// fractions of the golden ratio and of the square root of 2.
inline uint64_t HashKey(std::string_view key, uint64_t seed) {
  constexpr uint64_t kFirst = 0x9e3779b97f4a7c15;
  constexpr uint64_t kSecond = 0x6a09e667f3bcc909;
  const std::byte* at = weft::AsBytes(key).data();
  uint64_t hash = MixHash(seed ^ kFirst, key.size() + kSecond);
  size_t left = key.size();
  for (; left >= 8; left -= 8, at += 8) hash = MixHash(hash ^ weft::LoadLe64(at), kFirst) ^ kSecond;
  uint64_t last = 0;
  for (size_t i = 0; i < left; ++i) last |= static_cast<uint64_t>(at[i]) << (8 * i);
  return MixHash(hash ^ last ^ kSecond, kFirst);
}

// REQUIRES: buckets > 0.
inline uint32_t BucketOf(uint64_t hash, uint32_t buckets) {
  return static_cast<uint32_t>((static_cast<unsigned __int128>(hash) * buckets) >> 64);
}

}  // namespace kv::index
