// Remote memory of the C interface, and handles that travel between it and C++.
#include "weft/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "c/testing/loopback.h"
#include "c/testing/shelf.weft.h"
#include "weft/c.h"
#include "weft/c_memory.h"
#include "weft/c_server.h"
#include "weft/channel.h"
#include "weft/remote_memory.h"
#include "weft/server.h"

namespace weft::c_test {
namespace {

using testing::HasSubstr;

constexpr size_t kBytes = 64 << 10;

// A server that offers memory, and hands the handle out as a weft.RemoteRegion in a message.
class MemoryTest : public testing::TestWithParam<std::string> {
 protected:
  MemoryTest() {
    EXPECT_OK(weft_server_new(nullptr, nullptr, &server_));
    EXPECT_OK(weft_export_new(server_, kBytes, WEFT_ALL_RIGHTS, &memory_));
    weft_service* const service = weft_service_new("weft.c_test.Shelf");
    EXPECT_OK(
        weft_service_add_method(service, "Open", WEFT_UNARY, WEFT_NO_SIDE_EFFECTS, Open, memory_));
    EXPECT_OK(weft_server_add_service(server_, service));
    EXPECT_OK(weft_server_listen(server_, "127.0.0.1:0"));
  }
  ~MemoryTest() override {
    weft_export_free(memory_);
    EXPECT_OK(weft_server_free(server_));
  }

  static void Open(void* arg, weft_server_call* call) {
    char handle[WEFT_HANDLE_BYTES];
    EXPECT_OK(weft_export_handle(static_cast<weft_export*>(arg), handle));
    Place place;
    place.mutable_region()->set_capability(handle, sizeof(handle));
    weft_server_call_finish(call, nullptr, Bytes(place.SerializeAsString()));
  }

  char* owned() { return static_cast<char*>(weft_export_data(memory_)); }

  weft_server* server_ = nullptr;
  weft_export* memory_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Paths, MemoryTest, testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

// A client of the C interface that has the handle out of a message.
class Holder {
 public:
  Holder(const std::string& address, const std::string& path, weft_engine* engine = nullptr)
      : client_(address, path, engine) {
    weft_message* const reply = weft_message_new();
    const weft_call_options patient = Patient();
    EXPECT_OK(weft_call(client_.channel(), client_.Method("Open", WEFT_UNARY, WEFT_NO_SIDE_EFFECTS),
                        Bytes(""), &patient, reply));
    Place place;
    EXPECT_TRUE(place.ParseFromString(TextOf(reply)));
    weft_message_free(reply);
    EXPECT_OK(weft_remote_open(client_.channel(), Bytes(place.region().capability()), &remote));
    EXPECT_OK(weft_buffer_new(client_.channel(), 4096, &buffer));
  }
  ~Holder() {
    weft_remote_free(remote);
    weft_buffer_free(buffer);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  char* bytes() { return static_cast<char*>(weft_buffer_data(buffer)); }

  weft_remote* remote = nullptr;
  weft_buffer* buffer = nullptr;

 private:
  const CClient client_;  // goes last
};

TEST_P(MemoryTest, AClientReadsAndWritesInPlace) {
  std::memcpy(owned() + 1000, "from the owner", 14);
  Holder holder(weft_server_address(server_), GetParam());
  EXPECT_EQ(weft_remote_size(holder.remote), kBytes);
  EXPECT_EQ(weft_remote_rights(holder.remote), WEFT_ALL_RIGHTS);
  EXPECT_EQ(weft_buffer_size(holder.buffer), 4096u);

  weft_piece piece = {1000, holder.buffer, 8, 14};
  ASSERT_OK(weft_remote_read(holder.remote, &piece, 1));
  EXPECT_EQ(std::string(holder.bytes() + 8, 14), "from the owner");

  std::memcpy(holder.bytes(), "onetwo", 6);
  const weft_piece pieces[] = {{0, holder.buffer, 0, 3}, {kBytes - 3, holder.buffer, 3, 3}};
  ASSERT_OK(weft_remote_write(holder.remote, pieces, 2));
  // An atomic sees every write before it.
  uint64_t before = 77;
  ASSERT_OK(weft_remote_fetch_add(holder.remote, 4096, 5, &before));
  EXPECT_EQ(before, 0u);
  EXPECT_EQ(std::string(owned(), 3), "one");
  EXPECT_EQ(std::string(owned() + kBytes - 3, 3), "two");

  ASSERT_OK(weft_remote_compare_swap(holder.remote, 4096, 5, 9, &before));
  EXPECT_EQ(before, 5u);
  ASSERT_OK(weft_remote_compare_swap(holder.remote, 4096, 5, 10, &before));
  EXPECT_EQ(before, 9u);
  ASSERT_OK(weft_remote_fetch_add(holder.remote, 4096, 1, nullptr));
  uint64_t counter = 0;
  std::memcpy(&counter, owned() + 4096, sizeof(counter));
  EXPECT_EQ(counter, 10u);
}

TEST_P(MemoryTest, OperationsHaveCallbacks) {
  weft_engine* engine = nullptr;
  ASSERT_OK(weft_engine_new(nullptr, &engine));
  {
    Holder holder(weft_server_address(server_), GetParam(), engine);
    Signal end;
    std::memcpy(holder.bytes(), "abc", 3);
    weft_piece piece = {10, holder.buffer, 0, 3};
    ASSERT_OK(weft_remote_write_start(holder.remote, &piece, 1, Signal::OnDone, &end));
    EXPECT_EQ(end.Wait(), "OK");
    piece.buffer_offset = 100;
    ASSERT_OK(weft_remote_read_start(holder.remote, &piece, 1, Signal::OnDone, &end));
    EXPECT_EQ(end.Wait(), "OK");
    EXPECT_EQ(std::string(holder.bytes() + 100, 3), "abc");
    const auto value = [](void* arg, weft_status* status, uint64_t before) {
      static_cast<Signal*>(arg)->Give(Take(status) + " " + std::to_string(before));
    };
    ASSERT_OK(weft_remote_fetch_add_start(holder.remote, 8192, 3, value, &end));
    EXPECT_EQ(end.Wait(), "OK 0");
    ASSERT_OK(weft_remote_compare_swap_start(holder.remote, 8192, 3, 8, value, &end));
    EXPECT_EQ(end.Wait(), "OK 3");
    ASSERT_OK(weft_remote_fetch_add_start(holder.remote, 8193, 3, value, &end));
    EXPECT_THAT(end.Wait(), HasSubstr("3: "));
  }
  EXPECT_OK(weft_engine_free(engine));
}

TEST_P(MemoryTest, WhatLeavesTheMemoryIsRefused) {
  Holder holder(weft_server_address(server_), GetParam());
  const weft_piece outside[] = {
      {kBytes - 3, holder.buffer, 0, 4},    // of the remote memory
      {~uint64_t{0}, holder.buffer, 0, 4},  // the same
      {0, holder.buffer, 4095, 2},          // of the buffer
      {0, holder.buffer, ~size_t{0}, 2},    // the same
      {0, nullptr, 0, 4},                   // none
  };
  for (const weft_piece& piece : outside) {
    EXPECT_EQ(TakeCode(weft_remote_read(holder.remote, &piece, 1)), WEFT_INVALID_ARGUMENT);
    EXPECT_EQ(TakeCode(weft_remote_write(holder.remote, &piece, 1)), WEFT_INVALID_ARGUMENT);
  }
  EXPECT_THAT(Take(weft_remote_read(holder.remote, outside, 65)), HasSubstr("1 to 64"));
  EXPECT_THAT(Take(weft_remote_read(holder.remote, outside, 0)), HasSubstr("1 to 64"));
  EXPECT_THAT(Take(weft_remote_read(holder.remote, nullptr, 1)), HasSubstr("1 to 64"));
  EXPECT_EQ(TakeCode(weft_remote_fetch_add(holder.remote, kBytes, 1, nullptr)),
            WEFT_INVALID_ARGUMENT);
}

TEST_P(MemoryTest, AHandleIsARightAndNoMore) {
  std::string handle(WEFT_HANDLE_BYTES, '\0');
  const CClient client(weft_server_address(server_), GetParam());
  weft_remote* remote = nullptr;
  EXPECT_THAT(Take(weft_remote_open(client.channel(), Bytes("short"), &remote)),
              HasSubstr("handle has 5 bytes; one has 56"));
  EXPECT_EQ(TakeCode(weft_remote_open(client.channel(), Bytes(handle), &remote)),
            WEFT_INVALID_ARGUMENT);
  ASSERT_OK(weft_export_handle(memory_, handle.data()));
  handle.back() ^= 1;  // forged
  EXPECT_EQ(TakeCode(weft_remote_open(client.channel(), Bytes(handle), &remote)),
            WEFT_PERMISSION_DENIED);
  EXPECT_EQ(remote, nullptr);

  ASSERT_OK(weft_export_derive(memory_, 100, 50, WEFT_MAY_READ, 0, handle.data()));
  ASSERT_OK(weft_remote_open(client.channel(), Bytes(handle), &remote));
  EXPECT_EQ(weft_remote_size(remote), 50u);
  weft_buffer* buffer = nullptr;
  ASSERT_OK(weft_buffer_new(client.channel(), 50, &buffer));
  const weft_piece piece = {0, buffer, 0, 50};
  EXPECT_OK(weft_remote_read(remote, &piece, 1));
  EXPECT_EQ(TakeCode(weft_remote_write(remote, &piece, 1)), WEFT_PERMISSION_DENIED);

  EXPECT_EQ(weft_export_revoke(memory_, 0, ~uint64_t{0}), 1);
  EXPECT_NE(TakeCode(weft_remote_read(remote, &piece, 1)), WEFT_OK);
  weft_remote_free(remote);
  weft_buffer_free(buffer);

  EXPECT_THAT(Take(weft_export_derive(memory_, 0, 8, 8, 0, handle.data())),
              HasSubstr("rights are 8"));
  weft_export* other = nullptr;
  EXPECT_THAT(Take(weft_export_new(server_, 8, WEFT_MAY_USE_ATOMICS, &other)),
              HasSubstr("rights are 4"));
  EXPECT_EQ(TakeCode(weft_export_new(server_, 0, WEFT_MAY_READ, &other)), WEFT_INVALID_ARGUMENT);
}

TEST_P(MemoryTest, MemoryThatThereIsAlreadyIsOffered) {
  std::string table(8192, 'x');
  weft_export* memory = nullptr;
  ASSERT_OK(weft_export_existing(server_, table.data(), table.size(), WEFT_MAY_READ, &memory));
  EXPECT_EQ(weft_export_data(memory), table.data());
  EXPECT_EQ(weft_export_size(memory), table.size());
  char handle[WEFT_HANDLE_BYTES];
  ASSERT_OK(weft_export_handle(memory, handle));
  {
    const CClient client(weft_server_address(server_), GetParam());
    weft_remote* remote = nullptr;
    weft_buffer* buffer = nullptr;
    ASSERT_OK(weft_remote_open(client.channel(), {handle, sizeof(handle)}, &remote));
    ASSERT_OK(weft_buffer_new(client.channel(), 8192, &buffer));
    const weft_piece piece = {0, buffer, 0, 8192};
    ASSERT_OK(weft_remote_read(remote, &piece, 1));
    EXPECT_EQ(std::memcmp(weft_buffer_data(buffer), table.data(), table.size()), 0);
    weft_remote_free(remote);
    weft_buffer_free(buffer);
  }
  weft_export_free(memory);
}

// The handle of a C server's memory, used by a program of generated code.
TEST_P(MemoryTest, AGeneratedClientUsesTheHandle) {
  std::memcpy(owned() + 8, "from C", 6);
  ChannelOptions options;
  options.link.paths = *ParsePathList(GetParam());
  auto channel = Channel::Open(weft_server_address(server_), options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  Shelf::Stub stub(**channel);
  Place place;
  ASSERT_TRUE(stub.Open(c_test::Text(), &place, {.timeout_us = 30'000'000}).ok());
  auto remote = RemoteMemory::Open(**channel, place.region());
  ASSERT_TRUE(remote.ok()) << remote.status();
  auto buffer = (*channel)->AllocateBuffer(6);
  ASSERT_TRUE(buffer.ok());
  ASSERT_TRUE((*remote)->Read(8, (*buffer)->slice()).ok());
  EXPECT_EQ(AsStringView((*buffer)->bytes()), "from C");
}

}  // namespace
}  // namespace weft::c_test
