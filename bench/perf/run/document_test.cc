#include "bench/perf/run/document.h"

#include "gtest/gtest.h"

namespace weft::bench {
namespace {

class DocumentTest : public testing::Test {
 protected:
  DocumentTest() {
    options_.paths = {"shm", "rxe"};
    facts_.machine.cpu = "a \"fast\" one";
    facts_.libfabric = "1.17";
    facts_.taken_at = "2026-11-21T04:00:00Z";
    Outcome outcome;
    outcome.round = 1;
    outcome.figures.per_s = 1e6;
    outcome.figures.latency_us.fill(0.5);
    report_.results.Add({"shm", {Pattern::kUnary, 64, 1}, "weft"}, outcome);
    outcome.round = 2;
    outcome.fit = false;
    outcome.figures.latency_us.fill(2);
    report_.results.Add({"shm", {Pattern::kUnary, 64, 1}, "weft"}, outcome);
    report_.results.Add({"rxe", {Pattern::kRead, 4096, 8}, "raw"}, outcome);
    report_.plan.left_out.push_back({"", {Pattern::kWrite, 0, 1}, "", "no transfer of 0 bytes"});
    report_.core_to_core_ns = {60, 50, 70};
    document_ = ToDocument(options_, report_, facts_);
  }

  bool Has(const std::string& text) { return document_.find(text) != std::string::npos; }

  PerfOptions options_;
  PerfReport report_;
  DocumentFacts facts_;
  std::string document_;
};

TEST_F(DocumentTest, SaysWhatItIs) {
  EXPECT_TRUE(Has(R"("format": "weft-perf")")) << document_;
  EXPECT_TRUE(Has(R"("taken_at": "2026-11-21T04:00:00Z")"));
}

TEST_F(DocumentTest, SaysOnWhatMachine) {
  EXPECT_TRUE(Has(R"("cpu": "a \"fast\" one")"));
  EXPECT_TRUE(Has(R"("libfabric": "1.17")"));
  EXPECT_TRUE(Has(R"("core_to_core_ns": {"min": 50, "median": 60, "max": 70})"));
}

TEST_F(DocumentTest, EveryRoundIsThereAndTheMedianOfThoseThatCount) {
  EXPECT_TRUE(Has(R"("metric": "shm.unary.64B.x1.weft")"));
  EXPECT_TRUE(Has(R"({"round": 1, "fit": true, "per_s": 1000000)"));
  EXPECT_TRUE(Has(R"({"round": 2, "fit": false, "per_s": 1000000)"));
  EXPECT_TRUE(Has(R"("median": {"per_s": 1000000, "GBps": 0.064, "latency_us": {"p1": 0.5,)"));
}

TEST_F(DocumentTest, EmulatedPathsAreMarked) {
  EXPECT_TRUE(Has(R"("outstanding": 8, "kind": "raw", "emulated": true)"));
  EXPECT_TRUE(Has(R"("outstanding": 1, "kind": "weft", "emulated": false)"));
}

TEST_F(DocumentTest, WhatIsLeftOutIsThereWithItsReason) {
  EXPECT_TRUE(Has(R"("reason": "no transfer of 0 bytes")"));
}

}  // namespace
}  // namespace weft::bench
