#include "bench/machine/description.h"

#include "gtest/gtest.h"

namespace weft::bench {
namespace {

constexpr char kCpuInfo[] =
    "processor\t: 0\nmodel name\t: AMD EPYC 9B45\nflags\t\t: fpu hypervisor\n"
    "processor\t: 1\nmodel name\t: another\n";

TEST(DescriptionTest, TheFirstLineOfANameCounts) {
  EXPECT_EQ(ValueIn(kCpuInfo, "model name", ':'), "AMD EPYC 9B45");
  EXPECT_EQ(ValueIn("NAME=x\nPRETTY_NAME=\"Debian 12\"\n", "PRETTY_NAME", '='), "Debian 12");
}

TEST(DescriptionTest, WhatIsNotThereIsEmpty) {
  EXPECT_EQ(ValueIn(kCpuInfo, "model", ':'), "");
  EXPECT_EQ(ValueIn("", "model name", ':'), "");
  EXPECT_EQ(ValueIn("model name", "model name", ':'), "");
}

TEST(DescriptionTest, ThisMachineHasAKernelACompilerAndAProcessor) {
  const MachineDescription machine = DescribeMachine();
  EXPECT_GE(machine.processors, 1);
  EXPECT_EQ(machine.kernel.rfind("Linux ", 0), 0u) << machine.kernel;
  EXPECT_NE(machine.compiler.find('.'), std::string::npos) << machine.compiler;
  EXPECT_EQ(machine.congestion_control.find_first_of(" \n"), std::string::npos)
      << "one word, or none where /proc does not tell";
}

}  // namespace
}  // namespace weft::bench
