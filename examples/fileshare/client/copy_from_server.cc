#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "examples/fileshare/atomic_file.h"
#include "examples/fileshare/chunk.h"
#include "examples/fileshare/client/copy.h"
#include "examples/fileshare/client/lanes.h"
#include "examples/fileshare/relative_path.h"

namespace fileshare::client {
namespace {

constexpr char kPrefix[] = ".fileshare-";
constexpr uint32_t kOwnerBits = 0700;

// One file on its way here. The last chunk commits it; whoever drops it before removes it.
struct Incoming {
  Incoming(std::string from, const FileInfo& about, Place to)
      : source(std::move(from)), info(about), place(std::move(to)) {}

  const std::string source;
  const FileInfo info;
  const Place place;
  std::unique_ptr<AtomicFile> file;  // in place.folder
  std::atomic<uint64_t> chunks_left{0};

  absl::Status Finish() { return file->Commit(place.folder, place.name, info.mode); }
};

class Download {
 public:
  Download(const RemoteFolder& remote, const CopyOptions& options)
      : remote_(remote), lanes_(remote.channel(), options.outstanding) {}

  // All that is below `path`, which is relative to both. Of each folder on the way down one reply
  // is in memory, and no way is longer than kMaxDepth (relative_path.h): the server's is the tree.
  absl::Status Tree(const std::string& source, const Folder& root, const std::string& path = "") {
    return remote_.ForEach(Remote(source, path), [&](const Entry& entry) {
      const std::string inner = JoinPath(path, entry.name);
      if (!entry.info.is_folder) return File(Remote(source, inner), entry.info, root, inner);
      WEFT_RETURN_IF_ERROR(root.MakeFolder(inner, entry.info.mode | kOwnerBits));
      ++copied_.folders;
      return Tree(source, root, inner);
    });
  }

  absl::Status File(const std::string& source, const FileInfo& info, const Folder& root,
                    const std::string& destination) {
    WEFT_ASSIGN_OR_RETURN(Place place, FindPlace(root, destination));
    auto incoming = std::make_shared<Incoming>(source, info, std::move(place));
    ++copied_.files;
    copied_.bytes += info.bytes;
    const uint64_t chunks = ChunksOf(info.bytes);
    incoming->chunks_left = chunks;
    if (chunks <= 1) return Add([this, incoming](Lane& lane) { return Whole(lane, *incoming); });
    WEFT_ASSIGN_OR_RETURN(incoming->file, AtomicFile::Create(incoming->place.folder, kPrefix));
    for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
      WEFT_RETURN_IF_ERROR(
          Add([this, incoming, chunk](Lane& lane) { return Chunk(lane, *incoming, chunk); }));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Copied> Finish(const absl::Status& so_far) {
    WEFT_RETURN_IF_ERROR(lanes_.Finish());
    WEFT_RETURN_IF_ERROR(so_far);
    return copied_;
  }

 private:
  static std::string Remote(const std::string& source, const std::string& path) {
    return path.empty() ? source : JoinPath(source, path);
  }

  absl::Status Add(Lanes::Work work) {
    return lanes_.Add(std::move(work)) ? absl::OkStatus() : absl::CancelledError("a piece failed");
  }

  absl::Status Whole(Lane& lane, Incoming& incoming) const {
    size_t bytes = 0;
    if (incoming.info.bytes > 0) {
      WEFT_ASSIGN_OR_RETURN(bytes, remote_.ReadChunk(lane, incoming.source, incoming.info, 0));
    }
    WEFT_ASSIGN_OR_RETURN(incoming.file, AtomicFile::Create(incoming.place.folder, kPrefix));
    WEFT_RETURN_IF_ERROR(incoming.file->WriteAt(0, lane.data(), bytes));
    return incoming.Finish();
  }

  absl::Status Chunk(Lane& lane, Incoming& incoming, uint64_t chunk) const {
    WEFT_ASSIGN_OR_RETURN(const size_t bytes,
                          remote_.ReadChunk(lane, incoming.source, incoming.info, chunk));
    WEFT_RETURN_IF_ERROR(incoming.file->WriteAt(chunk * kChunkBytes, lane.data(), bytes));
    return --incoming.chunks_left == 0 ? incoming.Finish() : absl::OkStatus();
  }

  const RemoteFolder& remote_;
  Copied copied_;
  Lanes lanes_;  // goes first: its threads use the rest
};

}  // namespace

absl::StatusOr<Copied> CopyFromServer(const RemoteFolder& remote, const std::string& source,
                                      const std::string& destination, const CopyOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const FileInfo info, remote.Look(source));
  const std::filesystem::path local(destination);
  if (!info.is_folder) {
    const std::string parent = local.has_parent_path() ? local.parent_path().string() : ".";
    WEFT_ASSIGN_OR_RETURN(const Folder folder, Folder::Open(parent));
    Download download(remote, options);
    return download.Finish(download.File(source, info, folder, local.filename()));
  }
  if (mkdir(destination.c_str(), 0777) != 0 && errno != EEXIST) {
    return weft::StatusFromErrno(errno, weft::StrCat("making folder ", destination));
  }
  WEFT_ASSIGN_OR_RETURN(const Folder folder, Folder::Open(destination));
  Download download(remote, options);
  return download.Finish(download.Tree(source, folder));
}

}  // namespace fileshare::client
