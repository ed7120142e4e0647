#include "core/secret.h"

#include <unistd.h>

#include <array>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/testing/freed_memory.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr std::string_view kSecret = "the ravens leave the tower on a tuesday";
using Secret = SecretBytes<kSecret.size()>;

Secret Told() { return Secret(std::as_bytes(std::span(kSecret))); }

// What stands there by the kernel's word: no object of this program has to live there any more, and
// no compiler can know better.
std::string MemoryAt(const void* memory, size_t bytes) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  std::string text(bytes, '?');
  EXPECT_EQ(::write(ends[1], memory, bytes), static_cast<ssize_t>(bytes));
  EXPECT_EQ(::read(ends[0], text.data(), bytes), static_cast<ssize_t>(bytes));
  ::close(ends[0]);
  ::close(ends[1]);
  return text;
}

TEST(SecretBytesTest, NothingIsLeftWhereItWas) {
  alignas(Secret) std::array<std::byte, sizeof(Secret)> memory;
  auto* const secret = new (memory.data()) Secret(Told());
  ASSERT_EQ(MemoryAt(memory.data(), memory.size()), kSecret);
  secret->~Secret();
  EXPECT_EQ(MemoryAt(memory.data(), memory.size()), std::string(kSecret.size(), '\0'));
}

TEST(SecretBytesTest, NothingIsLeftOfAnOptionalOne) {
  std::optional<Secret> secret = Told();
  const void* const memory = &*secret;
  ASSERT_EQ(MemoryAt(memory, sizeof(Secret)), kSecret);
  secret.reset();
  EXPECT_EQ(MemoryAt(memory, sizeof(Secret)), std::string(kSecret.size(), '\0'));
}

TEST(SecretBytesTest, CopiesAreSecretsOfTheirOwn) {
  Secret copy;
  EXPECT_EQ(copy, Secret()) << "zeros at first";
  {
    const Secret secret = Told();
    copy = secret;
  }
  EXPECT_EQ(copy, Told());
  copy[0] ^= std::byte{1};
  EXPECT_NE(copy, Told());
}

TEST(SecretBytesTest, VectorsThatGrowLeaveNoneBehind) {
  FreedMemory freed(kSecret);
  {
    std::vector<Secret> secrets;
    for (int i = 0; i < 100; ++i) secrets.push_back(Told());
  }
  EXPECT_EQ(freed.blocks_with_it(), 0u);
}

// Else the tests that find nothing would prove nothing.
TEST(SecretTextTest, AnOrdinaryTextIsLeftInTheMemory) {
  FreedMemory freed(kSecret);
  { std::string text(kSecret); }
  EXPECT_EQ(freed.blocks_with_it(), 1u);
}

TEST(SecretTextTest, NothingIsLeftInTheMemory) {
  FreedMemory freed(kSecret);
  {
    std::string text(kSecret);
    const SecretText secret(std::move(text));
    EXPECT_EQ(*secret, kSecret);
    EXPECT_EQ(secret->size(), kSecret.size());
  }
  EXPECT_EQ(freed.blocks_with_it(), 0u);
}

TEST(WipeTest, WhatATextHadBeenBeforeIsWipedToo) {
  FreedMemory freed(kSecret.substr(1));
  {
    std::string text(kSecret);
    text = "x";
    Wipe(&text);
    EXPECT_EQ(text, "");
  }
  EXPECT_EQ(freed.blocks_with_it(), 0u);
}

}  // namespace
}  // namespace weft
