#include "core/testing/changed_lines.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/cache_line.h"
#include "core/check.h"

namespace weft::test {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kLinesOfPage = kPageBytes / kCacheLineBytes;
constexpr size_t kWordBytes = sizeof(uint64_t);
constexpr uint64_t kPresent = uint64_t{1} << 63;  // of an entry of /proc/self/pagemap
constexpr char kPagemap[] = "/proc/self/pagemap";
constexpr char kMemory[] = "/proc/self/mem";

bool IsPresent(int pagemap, uintptr_t address) {
  uint64_t entry = 0;
  const auto place = static_cast<off_t>(address / kPageBytes * sizeof(entry));
  return pread(pagemap, &entry, sizeof(entry), place) == sizeof(entry) && (entry & kPresent) != 0;
}

}  // namespace

std::string ChangedLines::WhyNot() {
  for (const char* const file : {kPagemap, kMemory}) {
    const int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return std::string(file) + " cannot be opened: " + std::strerror(errno);
    const bool is_seen =
        file != kPagemap || IsPresent(fd, reinterpret_cast<uintptr_t>(__builtin_frame_address(0)));
    close(fd);
    if (!is_seen) return std::string(file) + " does not say which pages are there";
  }
  return "";
}

ChangedLines::ChangedLines() : memory_(open(kMemory, O_RDONLY | O_CLOEXEC)) {
  const int pagemap = open(kPagemap, O_RDONLY | O_CLOEXEC);
  WEFT_CHECK(pagemap >= 0 && memory_ >= 0);  // User: WhyNot() said that they are there.
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long from = 0;
    unsigned long to = 0;
    char rights[5] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &from, &to, rights) != 3) continue;
    // The stack of the thread that looks is its own.
    if (std::strncmp(rights, "rw", 2) != 0 || line.find("[stack]") != std::string::npos) continue;
    mappings_.push_back(line);
    for (uintptr_t address = from; address < to; address += kPageBytes) {
      if (IsPresent(pagemap, address)) pages_.push_back({address, mappings_.size() - 1});
    }
  }
  close(pagemap);
  const size_t lines = pages_.size() * kLinesOfPage;
  mapped_bytes_ = (1 + pages_.size()) * kPageBytes + 3 * lines;
  void* const mapped =
      mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  WEFT_CHECK(mapped != MAP_FAILED);
  now_ = static_cast<std::byte*>(mapped);
  copies_ = now_ + kPageBytes;
  changed_ = reinterpret_cast<uint8_t*>(copies_ + pages_.size() * kPageBytes);
  always_ = changed_ + lines;
  words_ = always_ + lines;
  std::memset(always_, kFirst | kSecond, lines);
}

ChangedLines::~ChangedLines() {
  munmap(now_, mapped_bytes_);
  close(memory_);
}

void ChangedLines::Begin() { Look(0); }
void ChangedLines::Next() { Look(kFirst); }
void ChangedLines::End() {
  Look(kSecond);
  for (size_t line = 0; line < pages_.size() * kLinesOfPage; ++line) {
    always_[line] &= changed_[line];
    changed_[line] = 0;
  }
}

void ChangedLines::Look(uint8_t who) {
  for (size_t page = 0; page < pages_.size(); ++page) {
    const auto place = static_cast<off_t>(pages_[page].address);
    if (pread(memory_, now_, kPageBytes, place) != kPageBytes) continue;  // it was given back
    std::byte* const before = copies_ + page * kPageBytes;
    if (who != 0 && std::memcmp(now_, before, kPageBytes) != 0) {
      for (size_t i = 0; i < kPageBytes / kWordBytes; ++i) {
        const size_t at = i * kWordBytes;
        if (std::memcmp(now_ + at, before + at, kWordBytes) == 0) continue;
        const size_t line = page * kLinesOfPage + at / kCacheLineBytes;
        changed_[line] |= who;
        words_[line] |= static_cast<uint8_t>(1 << at % kCacheLineBytes / kWordBytes);
      }
    }
    std::memcpy(before, now_, kPageBytes);
  }
}

size_t ChangedLines::CountOf(uint8_t who) const {
  size_t count = 0;
  for (size_t line = 0; line < pages_.size() * kLinesOfPage; ++line) {
    count += (always_[line] & who) != 0;
  }
  return count;
}

std::vector<std::string> ChangedLines::shared() const {
  std::vector<std::string> found;
  for (size_t line = 0; line < pages_.size() * kLinesOfPage; ++line) {
    if (always_[line] != (kFirst | kSecond)) continue;
    const Page& page = pages_[line / kLinesOfPage];
    std::ostringstream text;
    text << reinterpret_cast<const void*>(page.address + line % kLinesOfPage * kCacheLineBytes)
         << ", words";
    for (size_t word = 0; word < kCacheLineBytes / kWordBytes; ++word) {
      if ((words_[line] >> word & 1) != 0) text << " " << word;
    }
    text << ", of " << mappings_[page.mapping];
    found.push_back(text.str());
  }
  return found;
}

}  // namespace weft::test
