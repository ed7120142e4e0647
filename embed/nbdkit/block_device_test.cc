#include "embed/nbdkit/block_device.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "transport/descriptor.h"

namespace weft::embed {
namespace {

class BlockDeviceTest : public testing::Test {
 protected:
  BlockDeviceTest() : path_(testing::TempDir() + "/block_device_test.img") {
    std::ofstream(path_, std::ios::binary | std::ios::trunc);
    std::filesystem::resize_file(path_, kBytes);
  }
  ~BlockDeviceTest() override { std::filesystem::remove(path_); }

  std::unique_ptr<BlockDevice> Open(bool read_only = false) {
    auto device = BlockDevice::Open(path_, read_only);
    EXPECT_TRUE(device.ok()) << device.status();
    return *std::move(device);
  }
  static std::string Read(BlockDevice& device, uint64_t offset, size_t bytes) {
    std::string text(bytes, '?');
    const absl::Status status =
        device.Read(offset, {reinterpret_cast<std::byte*>(text.data()), bytes});
    EXPECT_TRUE(status.ok()) << status;
    return text;
  }

  static constexpr uint64_t kBytes = 1 << 20;
  const std::string path_;
};

TEST_F(BlockDeviceTest, KeepsWhatWasWritten) {
  auto device = Open();
  EXPECT_EQ(device->facts().bytes, kBytes);
  EXPECT_TRUE(device->Write(kBytes - 4, AsBytes("last")).ok());
  EXPECT_TRUE(device->Write(0, AsBytes("durable")).ok());
  EXPECT_TRUE(device->Flush().ok());
  const uint64_t epoch = device->epoch();
  device.reset();
  device = Open();
  EXPECT_EQ(Read(*device, kBytes - 4, 4), "last");
  EXPECT_EQ(Read(*device, 0, 7), "durable");
  EXPECT_EQ(device->epoch(), epoch) << "another process, the same boot, the same file";
}

TEST_F(BlockDeviceTest, AnotherFileIsAnotherEpoch) {
  const uint64_t epoch = Open()->epoch();
  const std::string other = path_ + ".other";
  std::ofstream(other) << "some";
  const auto device = BlockDevice::Open(other, false);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_NE((*device)->epoch(), epoch);
  std::filesystem::remove(other);
}

TEST_F(BlockDeviceTest, HolesAreTold) {
  const auto device = Open();
  ASSERT_TRUE(device->Write(256 << 10, AsBytes(std::string(64 << 10, 'x'))).ok());
  const auto extents = device->Extents(0, kBytes, 10);
  ASSERT_TRUE(extents.ok()) << extents.status();
  uint64_t bytes = 0;
  bool told_data = false;
  for (const BlockDevice::Extent& extent : *extents) {
    const bool has_data = bytes <= 256 << 10 && bytes + extent.bytes > 256 << 10;
    EXPECT_FALSE(has_data && extent.is_hole);
    told_data = told_data || has_data;
    bytes += extent.bytes;
  }
  EXPECT_EQ(bytes, kBytes);
  EXPECT_TRUE(told_data);
  EXPECT_EQ(device->Extents(0, kBytes, 1)->size(), 1u);
  EXPECT_EQ(device->Extents(kBytes - 1, 1, 5)->front().bytes, 1u);
}

TEST_F(BlockDeviceTest, ZeroedAndTrimmedRangesReadAsZeros) {
  const auto device = Open();
  for (const bool may_trim : {true, false}) {
    ASSERT_TRUE(device->Write(0, AsBytes(std::string(8192, 'x'))).ok());
    const absl::Status zeroed = device->Zero(1, 8190, may_trim);
    if (absl::IsUnimplemented(zeroed)) continue;  // this file system cannot
    ASSERT_TRUE(zeroed.ok()) << zeroed;
    EXPECT_EQ(Read(*device, 0, 8192), "x" + std::string(8190, '\0') + "x");
    EXPECT_EQ(std::filesystem::file_size(path_), kBytes);
  }
  EXPECT_TRUE(device->Trim(0, 4096).ok());
}

// A raw device whose blocks are those of a file, for as long as this lives.
class LoopDevice {
 public:
  explicit LoopDevice(const std::string& file) {
    const Descriptor control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
    const Descriptor blocks(::open(file.c_str(), O_RDWR | O_CLOEXEC));
    const int number = control.valid() ? ::ioctl(control.get(), LOOP_CTL_GET_FREE) : -1;
    if (number < 0 || !blocks.valid()) return;
    const std::string path = "/dev/loop" + std::to_string(number);
    held_ = Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    loop_config config = {};
    config.fd = static_cast<uint32_t>(blocks.get());
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (held_.valid() && ::ioctl(held_.get(), LOOP_CONFIGURE, &config) == 0) path_ = path;
  }
  // Empty: the system lets this process make none.
  const std::string& path() const { return path_; }

 private:
  Descriptor held_;
  std::string path_;
};

// Of a part of a sector fallocate(2) says EINVAL. That was told as a medium that has failed, so
// that the client had EIO where nbdkit would have written the zeros.
TEST_F(BlockDeviceTest, ARawDeviceZeroesWholeSectorsAlone) {
  const LoopDevice loop(path_);
  if (loop.path().empty()) GTEST_SKIP() << "no loop device can be made here";
  auto device = BlockDevice::Open(loop.path(), /*read_only=*/false);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->facts().bytes, kBytes);
  ASSERT_TRUE((*device)->Write(0, AsBytes(std::string(8192, 'x'))).ok());
  for (const bool may_trim : {true, false}) {
    const absl::Status zeroed = (*device)->Zero(1, 4096, may_trim);
    EXPECT_TRUE(absl::IsUnimplemented(zeroed)) << zeroed;
  }
  EXPECT_TRUE((*device)->Trim(1, 4096).ok());
  EXPECT_EQ(Read(**device, 0, 8192), std::string(8192, 'x'));
  EXPECT_TRUE((*device)->Zero(4096, 4096, /*may_trim=*/false).ok());
  EXPECT_EQ(Read(**device, 0, 8192), std::string(4096, 'x') + std::string(4096, '\0'));
}

TEST_F(BlockDeviceTest, OneMayWriteAndSeveralMayRead) {
  auto writer = Open();
  EXPECT_TRUE(absl::IsFailedPrecondition(BlockDevice::Open(path_, false).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(BlockDevice::Open(path_, true).status()));
  writer.reset();
  const auto reader = Open(true);
  EXPECT_TRUE(BlockDevice::Open(path_, true).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(BlockDevice::Open(path_, false).status()));
}

TEST_F(BlockDeviceTest, AFileThatWasCutIsAnErrorAndNotZeros) {
  const auto device = Open();
  std::filesystem::resize_file(path_, 100);
  std::string text(100, '?');
  const MutableByteSpan into(reinterpret_cast<std::byte*>(text.data()), text.size());
  EXPECT_FALSE(device->ReadCached(50, into));
  EXPECT_TRUE(absl::IsDataLoss(device->Read(50, into)));
}

TEST_F(BlockDeviceTest, WhatIsNoDeviceIsRefused) {
  EXPECT_TRUE(absl::IsFailedPrecondition(BlockDevice::Open("/dev/null", false).status()));
  EXPECT_TRUE(absl::IsNotFound(BlockDevice::Open(path_ + ".none", false).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(BlockDevice::Open(testing::TempDir(), true).status()));
}

}  // namespace
}  // namespace weft::embed
