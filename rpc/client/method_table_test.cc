// Numbers of methods, of which most channels have few and some have many.
#include "rpc/client/method_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
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

TEST(BoundServicesTest, EachNumberIsAMethodOfItsService) {
  std::vector<MethodDescriptor> methods;
  for (const char* const name : {"A", "B", "C"})
    methods.push_back({name, "", "", nullptr, nullptr});
  const ServiceDescriptor first{"test.First", methods};
  const ServiceDescriptor empty{"test.Empty", {}};
  const ServiceDescriptor last{"test.Last", methods};
  BoundServices bound;
  EXPECT_EQ(bound.Find(0).service, nullptr);
  EXPECT_EQ(bound.Bind(first), 0u);
  EXPECT_EQ(bound.Bind(empty), 3u);
  EXPECT_EQ(bound.Find(3).service, nullptr);
  EXPECT_EQ(bound.Bind(last), 3u);
  EXPECT_EQ(bound.Bind(first), 0u) << "the same again";
  for (uint32_t method = 0; method < 6; ++method) {
    const BoundServices::Found found = bound.Find(method);
    EXPECT_EQ(found.service, method < 3 ? &first : &last) << method;
    EXPECT_EQ(found.method->name, methods[method % 3].name) << method;
  }
  EXPECT_EQ(bound.Find(6).service, nullptr);
}

// Threads with engines of their own, whose calls have interceptors, share this.
TEST(BoundServicesTest, WhatIsBoundIsFoundWhileOthersBind) {
  std::vector<MethodDescriptor> methods = {{"A", "", "", nullptr, nullptr}};
  const std::vector<ServiceDescriptor> services(1000, ServiceDescriptor{"test.One", methods});
  BoundServices bound;
  std::atomic<uint32_t> ready = 0;
  std::thread binds([&] {
    for (const ServiceDescriptor& service : services) ready = bound.Bind(service) + 1;
  });
  uint32_t seen = 0;
  while (seen < services.size()) {
    seen = ready;
    if (seen == 0) continue;
    EXPECT_EQ(bound.Find(seen - 1).service, &services[seen - 1]);
    EXPECT_EQ(bound.Find(0).service, &services[0]);
  }
  binds.join();
}

}  // namespace
}  // namespace weft
