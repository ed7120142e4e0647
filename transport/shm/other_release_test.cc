// A neighbouring release on the other side of shared memory.

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "gtest/gtest.h"
#include "transport/descriptor.h"
#include "transport/shm/sealed_memory.h"
#include "transport/shm/testing/shm_pair.h"

namespace weft {
namespace {

// What the build of 2026-11-29 leaves in shared memory, as numbers, beside what this build makes of
// it and leaves there. Where these tests have to change, releases do not understand each other any
// more: then a magic number has to change as well, by which the other side gives the path up.
class OtherReleaseTest : public ShmDomainTest {
 protected:
  static constexpr size_t kLinkBytes = 4096 + 2 * 24576;
  static constexpr size_t kToPassive = 4096, kToActive = 4096 + 24576;
  static constexpr uint64_t kLinkMagic = 0x32474e4954464557;
  static constexpr uint64_t kBatch = 1 << 16;  // a header: with length, number << 24, acked << 40
  static constexpr uint64_t kClosed = 3 << 16;
  template <class T>
  static T Get(const SealedMemory& memory, size_t at) {
    return std::atomic_ref<T>(*reinterpret_cast<T*>(memory.data() + at)).load();
  }
  template <class T>
  static void Put(const SealedMemory& memory, size_t at, T value) {
    std::atomic_ref<T>(*reinterpret_cast<T*>(memory.data() + at)).store(value);
  }
  static void PutRecord(const SealedMemory& memory, size_t at, std::string_view text,
                        uint64_t more) {
    std::memcpy(memory.data() + at + 8, text.data(), text.size());
    Put<uint64_t>(memory, at, text.size() | kBatch | more);
  }
  static std::string TextAt(const SealedMemory& memory, size_t at, size_t bytes) {
    return {reinterpret_cast<const char*>(memory.data() + at + 8), bytes};
  }
  static SealedMemory Shown(Host& host) {
    return SealedMemory::Open(host.domain->host_descriptor(), 64 + 8192 + 4096 * 64).value();
  }
  // "/memfd:NAME (deleted)"
  static std::string LinkOf(int descriptor) {
    char link[128];
    const ssize_t length =
        readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), link, sizeof(link));
    return {link, length > 0 ? static_cast<size_t>(length) : 0};
  }
  LinkPeer Peer(int memory, Host& other, PeerDoorbell& bell) {
    LinkPeer peer;
    peer.memory_descriptor = memory;
    peer.process_id = getpid();
    peer.host_descriptor = other.domain->host_descriptor();
    peer.doorbell = &bell;
    return peer;
  }
};

TEST_F(OtherReleaseTest, ThatDialsIsUnderstood) {
  const Descriptor descriptor(b_.domain->NewLinkMemory().value());
  const SealedMemory link = SealedMemory::Open(descriptor.get(), kLinkBytes).value();
  EXPECT_EQ(Get<uint64_t>(link, 0), kLinkMagic);
  End b;
  b.link = b_.domain->Accept(Peer(descriptor.get(), a_, *bell_of_a_), &b).value();
  EXPECT_EQ(Get<uint32_t>(link, 128), 1u) << "this side is here";
  Put<uint32_t>(link, 256 + 4, 77);  // the ready flag of the other side's link
  Put<uint32_t>(link, 256, 1);
  ASSERT_TRUE(Run([&] { return b.ups == 1; })) << b.status;
  PutRecord(link, kToPassive, "a first batch", 0);
  ASSERT_TRUE(Run([&] { return b_.received.size() == 1; })) << b.status;
  ASSERT_TRUE(b_.Send(b, "its answer").ok());
  ASSERT_TRUE(Run([&] { return Get<uint64_t>(link, kToActive) != 0; }));
  EXPECT_EQ(Get<uint64_t>(link, kToActive), 10 | kBatch | uint64_t{1} << 40) << "one line consumed";
  EXPECT_EQ(TextAt(link, kToActive, 10), "its answer");
  EXPECT_EQ(Get<uint8_t>(Shown(a_), 64 + 77), 1);
  // All was consumed: the next record is at the beginning again.
  PutRecord(link, kToPassive, "the second", uint64_t{1} << 24 | uint64_t{1} << 40);
  ASSERT_TRUE(Run([&] { return b_.received.size() == 2; })) << b.status;
  EXPECT_EQ(b_.received, std::vector<std::string>({"a first batch", "the second"}));
  Put<uint64_t>(link, kToPassive + 64, kClosed | uint64_t{2} << 24);
  EXPECT_TRUE(Run([&] { return b.downs == 1; }));
}

TEST_F(OtherReleaseTest, ThatListensIsUnderstood) {
  const SealedMemory link = SealedMemory::Create("of another release", kLinkBytes).value();
  Put<uint64_t>(link, 0, kLinkMagic);
  Put<uint32_t>(link, 128 + 4, 78);
  Put<uint32_t>(link, 128, 1);
  End a;
  a.link = a_.domain->Connect(Peer(link.descriptor(), b_, *bell_of_b_), &a).value();
  ASSERT_TRUE(Run([&] { return a.ups == 1; })) << a.status;
  EXPECT_EQ(Get<uint32_t>(link, 256), 1u);
  ASSERT_TRUE(a_.Send(a, "a question").ok());
  ASSERT_TRUE(Run([&] { return Get<uint64_t>(link, kToPassive) != 0; }));
  EXPECT_EQ(Get<uint64_t>(link, kToPassive), 10 | kBatch);
  EXPECT_EQ(TextAt(link, kToPassive, 10), "a question");
  EXPECT_EQ(Get<uint8_t>(Shown(b_), 64 + 78), 1);
  PutRecord(link, kToActive, "the answer", uint64_t{1} << 40);
  ASSERT_TRUE(Run([&] { return !a_.received.empty(); })) << a.status;
  EXPECT_EQ(a_.received[0], "the answer");
}

TEST_F(OtherReleaseTest, FindsARegionWhereItHasAlwaysBeen) {
  alignas(64) std::byte bytes[4096] = {};
  auto region = b_.domain->Register({bytes, sizeof(bytes)}, Access::kRemoteReadWrite).value();
  const SealedMemory shown = Shown(b_);
  EXPECT_EQ(Get<uint64_t>(shown, 0), 0x324d4f4454464557u);
  // In the table, whose file the name of that memory tells.
  char identity[17];
  int table_descriptor = -1;
  ASSERT_EQ(sscanf(LinkOf(b_.domain->host_descriptor()).c_str(),
                   "/memfd:weft-domain-%16[0-9a-f]-%d (deleted)", identity, &table_descriptor),
            2);
  EXPECT_EQ(LinkOf(table_descriptor), std::string("/memfd:weft-") + identity + " (deleted)");
  constexpr size_t kTableBytes = 64 + 4096 * 64;
  void* const table =
      mmap(nullptr, kTableBytes, PROT_READ, MAP_SHARED, table_descriptor, /*offset=*/0);
  ASSERT_NE(table, MAP_FAILED);
  const auto get = [&](auto word, size_t at) {
    std::memcpy(&word, static_cast<const std::byte*>(table) + at, sizeof(word));
    return word;
  };
  EXPECT_EQ(get(uint64_t{}, 0), 0x3447525446455721u);
  const uint64_t key = region->remote().key;
  const size_t entry = 64 + key % 4096 * 64;
  EXPECT_EQ(get(uint64_t{}, entry), key);
  EXPECT_EQ(get(uint64_t{}, entry + 8), reinterpret_cast<uintptr_t>(bytes));
  EXPECT_EQ(get(uint64_t{}, entry + 16), sizeof(bytes));
  EXPECT_EQ(get(uint32_t{}, entry + 24), 3u) << "may be read, and written";
  // Its pin, which the other side has set: the owner waits for it, and not for others.
  const size_t pin = 64 + 8192 + key % 4096 * 64;
  Put<uint32_t>(shown, pin, 1);
  End a, b;
  Open(a, b);
  EXPECT_FALSE(b.link->Reclaim(std::move(region)));
  EXPECT_EQ(get(uint64_t{}, entry), 0u);
  munmap(table, kTableBytes);
}

}  // namespace
}  // namespace weft
