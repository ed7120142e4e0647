// Runs a fuzz target without a fuzzer: every file of its corpus, then files of it changed at
// random, from a fixed seed.
//
//   X_corpus_test [--mutations=N] FILE_OR_FOLDER...
//
// What a target finds it says by ending the process: the input is written first, to
// $TEST_UNDECLARED_OUTPUTS_DIR or the current folder as "crash-replay", when it was a changed one.

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace weft {
namespace {

constexpr uint64_t kSeed = 4711;
// As the fuzzer's own limit: longer inputs find nothing that shorter ones do not.
constexpr size_t kMaxInputBytes = 4096;

std::string g_running;  // the input

void OnCrash(int signal) {
  const char* folder = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  const std::string path = std::string(folder != nullptr ? folder : ".") + "/crash-replay";
  std::ofstream(path, std::ios::binary) << g_running;
  std::fprintf(stderr, "the input is in %s\n", path.c_str());
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void Run(std::string input) {
  g_running = std::move(input);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(g_running.data()), g_running.size());
}

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Changes, removes, repeats or inserts a few bytes, or goes on with the end of another input.
std::string Mutate(std::string input, const std::vector<std::string>& corpus, Random& random) {
  for (uint64_t i = 1 + random.Uniform(5); i > 0; --i) {
    if (input.empty()) input.push_back('\0');
    const size_t at = random.Uniform(input.size());
    switch (random.Uniform(6)) {
      case 0:
        input[at] = static_cast<char>(random.Next64());
        break;
      case 1:
        input[at] = static_cast<char>(input[at] ^ (1 << random.Uniform(8)));
        break;
      case 2:
        input.erase(at, 1 + random.Uniform(8));
        break;
      case 3:
        input.insert(at, input.substr(at, random.Uniform(32)));
        break;
      case 4:
        input.insert(at, random.Uniform(5), static_cast<char>(random.Next64()));
        break;
      case 5: {
        const std::string& other = corpus[random.Uniform(corpus.size())];
        input = input.substr(0, at) + other.substr(std::min(at, other.size()));
        break;
      }
    }
  }
  return input.substr(0, kMaxInputBytes);
}

int Main(int argc, char** argv) {
  constexpr std::string_view kMutations = "--mutations=";
  unsigned long mutations = 0;
  std::vector<std::filesystem::path> paths;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with(kMutations)) {
      mutations = std::strtoul(argv[i] + kMutations.size(), nullptr, 10);
    } else if (std::filesystem::is_directory(argv[i])) {
      for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
        paths.push_back(entry.path());
      }
    } else {
      paths.emplace_back(argv[i]);
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> corpus;
  for (const auto& path : paths) corpus.push_back(Read(path));
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: there is no corpus\n", argv[0]);
    return 1;
  }
  for (size_t i = 0; i < corpus.size(); ++i) Run(corpus[i]);
  std::signal(SIGABRT, OnCrash);
  std::signal(SIGSEGV, OnCrash);
  Random random(kSeed);
  for (unsigned long i = 0; i < mutations; ++i) {
    Run(Mutate(corpus[random.Uniform(corpus.size())], corpus, random));
  }
  std::printf("%zu inputs of the corpus, %lu changed ones (seed %llu)\n", corpus.size(), mutations,
              static_cast<unsigned long long>(kSeed));
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Main(argc, argv); }
