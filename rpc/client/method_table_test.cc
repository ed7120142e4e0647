// Numbers of methods, of which most channels have few and some have many.
#include "rpc/client/method_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rpc/wire/hello.pb.h"
#include "rpc/wire/service.h"

namespace weft {
namespace {

// Two of these are more than may be bound to one channel.
constexpr uint32_t kMethods = MethodTable::kMaxMethods / 2 + 1;

// A service of many methods, and a server that has them in the opposite order.
class MethodTableTest : public testing::Test {
 protected:
  void SetUp() override {
    for (uint32_t i = 0; i < kMethods; ++i) names_.push_back("Method" + std::to_string(i));
    for (const std::string& name : names_) methods_.push_back({name, "", "", nullptr, nullptr});
    rpc::ServiceTable* const service = hello_.add_services();
    service->set_name("test.Large");
    for (uint32_t i = kMethods; i-- > 0;) service->add_methods(names_[i]);
  }
  static uint16_t NumberOf(uint32_t method) { return static_cast<uint16_t>(kMethods - 1 - method); }
  void ExpectResolved(uint32_t method) {
    EXPECT_EQ(table_.Find(method), MethodTable::kUnknown) << method;
    const absl::StatusOr<MethodTable::Agreed> agreed = table_.Resolve(method, "somewhere");
    ASSERT_TRUE(agreed.ok()) << agreed.status();
    EXPECT_EQ(agreed->number, NumberOf(method));
    EXPECT_EQ(table_.Find(method), NumberOf(method));
  }

  std::vector<std::string> names_;
  std::vector<MethodDescriptor> methods_;
  rpc::ServerHello hello_;
  MethodTable table_;
};

TEST_F(MethodTableTest, EachMethodOfALargeServiceHasItsNumber) {
  const ServiceDescriptor service{"test.Large", methods_};
  ASSERT_EQ(table_.Bind(service), 0u);
  ASSERT_TRUE(table_.Learn(hello_));
  for (const uint32_t method : {kMethods - 1, 0u, 31u, 32u, 33u, 700u}) ExpectResolved(method);
  EXPECT_EQ(table_.Find(1), MethodTable::kUnknown);
  EXPECT_EQ(table_.Find(701), MethodTable::kUnknown);
}

TEST_F(MethodTableTest, AnotherServersNumbersAreNotTheLastOnes) {
  const ServiceDescriptor service{"test.Large", methods_};
  table_.Bind(service);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(table_.Learn(hello_));
    ExpectResolved(3);
    ExpectResolved(300);
  }
  table_.Forget();
  EXPECT_EQ(table_.Find(3), MethodTable::kUnknown);
  EXPECT_EQ(table_.Find(300), MethodTable::kUnknown);
}

TEST_F(MethodTableTest, WhatCouldNotBeBoundHasNoNumber) {
  const ServiceDescriptor service{"test.Large", methods_};
  const ServiceDescriptor another{"test.Another", methods_};
  table_.Bind(service);
  const uint32_t first = table_.Bind(another);
  EXPECT_EQ(first, MethodTable::kMaxMethods);
  ASSERT_TRUE(table_.Learn(hello_));
  for (const uint32_t method : {first, first + kMethods, ~0u}) {
    EXPECT_EQ(table_.Find(method), MethodTable::kUnknown);
    EXPECT_EQ(table_.Resolve(method, "somewhere").status().code(),
              absl::StatusCode::kResourceExhausted);
  }
}

}  // namespace
}  // namespace weft
