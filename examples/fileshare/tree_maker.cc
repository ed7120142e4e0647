#include "examples/fileshare/tree_maker.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "examples/fileshare/atomic_file.h"
#include "examples/fileshare/chunk.h"
#include "examples/fileshare/relative_path.h"

namespace fileshare {
namespace {

constexpr uint64_t kMaxSmall = 1 << 20;
constexpr uint64_t kMaxLarge = 64 << 20;
constexpr uint64_t kFilesPerFolder = 40;
constexpr uint32_t kModes[] = {0644, 0600, 0755, 0640, 0444};
constexpr const char* kStems[] = {"file", "with blank", "grüße", "Данные", "a.tar.gz"};

class TreeMaker {
 public:
  TreeMaker(const Folder& root, uint64_t bytes, uint64_t seed)
      : root_(root), wanted_(bytes), random_(seed), chunk_(kChunkBytes) {}

  absl::StatusOr<TreeSize> Make() {
    WEFT_RETURN_IF_ERROR(MakeSmallOnes());
    WEFT_RETURN_IF_ERROR(MakeLargeOnes());
    WEFT_RETURN_IF_ERROR(NextFolder());  // stays empty
    return size_;
  }

 private:
  // Below one of those that are there already, so that some are deep.
  absl::Status NextFolder() {
    const std::string& parent = folders_[random_.Uniform(folders_.size())];
    std::string path = JoinPath(parent, weft::StrCat("folder ", size_.folders));
    WEFT_RETURN_IF_ERROR(root_.MakeFolder(path, size_.folders % 2 == 0 ? 0755 : 0700));
    folders_.push_back(std::move(path));
    ++size_.folders;
    return absl::OkStatus();
  }

  absl::Status MakeSmallOnes() {
    while (size_.bytes < wanted_ / 2) {
      if (size_.files % kFilesPerFolder == 0) WEFT_RETURN_IF_ERROR(NextFolder());
      // Every twentieth is empty.
      const uint64_t most_bits = std::bit_width(kMaxSmall) - 1;
      const uint64_t bits = random_.Uniform(most_bits);
      const uint64_t bytes = (uint64_t{1} << bits) + random_.Uniform(uint64_t{1} << bits);
      WEFT_RETURN_IF_ERROR(MakeFile(size_.files % 20 == 7 ? 0 : bytes));
    }
    return absl::OkStatus();
  }

  absl::Status MakeLargeOnes() {
    const uint64_t most = std::clamp<uint64_t>(wanted_ / 4, kChunkBytes, kMaxLarge);
    while (size_.bytes < wanted_) {
      WEFT_RETURN_IF_ERROR(MakeFile(kMaxSmall / 2 + random_.Uniform(most)));
    }
    return absl::OkStatus();
  }

  absl::Status MakeFile(uint64_t bytes) {
    const std::string name =
        weft::StrCat(kStems[size_.files % std::size(kStems)], " ", size_.files);
    const uint32_t mode = kModes[size_.files % std::size(kModes)];
    WEFT_ASSIGN_OR_RETURN(const Folder folder, root_.Walk(folders_.back()));
    WEFT_ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(folder, ".making-"));
    for (uint64_t chunk = 0; chunk < ChunksOf(bytes); ++chunk) {
      const size_t length = BytesOfChunk(bytes, chunk);
      FillChunk(length);
      WEFT_RETURN_IF_ERROR(file->WriteAt(chunk * kChunkBytes, chunk_.data(), length));
    }
    ++size_.files;
    size_.bytes += bytes;
    return file->Commit(folder, name, mode);
  }

  void FillChunk(size_t bytes) {
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
      const uint64_t word = random_.Next64();
      std::memcpy(chunk_.data() + at, &word, sizeof(word));
    }
  }

  const Folder& root_;
  const uint64_t wanted_;
  weft::Random random_;
  std::vector<std::byte> chunk_;  // a multiple of 8 bytes
  std::vector<std::string> folders_ = {""};
  TreeSize size_;
};

}  // namespace

absl::StatusOr<TreeSize> MakeTree(const Folder& root, uint64_t bytes, uint64_t seed) {
  return TreeMaker(root, bytes, seed).Make();
}

}  // namespace fileshare
