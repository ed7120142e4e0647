#include "examples/verify/witness/process_facts.h"

#include <filesystem>
#include <fstream>
#include <string>

namespace kv::witness {
namespace {

uint64_t CountEntries(const char* folder) {
  std::error_code error;
  uint64_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    ++count;
  }
  return count;
}

}  // namespace

ProcessFacts ReadProcessFacts() {
  ProcessFacts facts;
  facts.descriptors = CountEntries("/proc/self/fd");
  facts.threads = CountEntries("/proc/self/task");
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmPin:") status >> facts.pinned_kib;
    if (word == "VmRSS:") status >> facts.resident_kib;
  }
  return facts;
}

}  // namespace kv::witness
