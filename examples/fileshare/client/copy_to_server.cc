#include <atomic>
#include <filesystem>
#include <memory>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "examples/fileshare/chunk.h"
#include "examples/fileshare/client/copy.h"
#include "examples/fileshare/client/lanes.h"
#include "examples/fileshare/relative_path.h"
#include "examples/fileshare/tree_walk.h"

namespace fileshare::client {
namespace {

constexpr uint32_t kOwnerBits = 0700;

// One large file on its way to the server. The last chunk commits it; without that, the last who
// drops it tells the server.
struct Outgoing {
  Outgoing(const RemoteFolder& server, uint64_t number, OpenedFile opened)
      : remote(server),
        upload(number),
        file(std::move(opened)),
        chunks_left(ChunksOf(file.info.bytes)) {}
  ~Outgoing() {
    if (!committed) remote.Abort(upload);
  }
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;

  const RemoteFolder& remote;
  const uint64_t upload;
  const OpenedFile file;
  std::atomic<uint64_t> chunks_left;
  bool committed = false;
};

absl::StatusOr<size_t> ReadLocal(Lane& lane, const OpenedFile& file, uint64_t chunk) {
  const size_t bytes = file.info.bytes == 0 ? 0 : BytesOfChunk(file.info.bytes, chunk);
  WEFT_ASSIGN_OR_RETURN(const size_t got, file.ReadAt(chunk * kChunkBytes, lane.data(), bytes));
  if (got == bytes) return bytes;
  return absl::AbortedError("a local file has become shorter meanwhile");
}

class Upload {
 public:
  Upload(const RemoteFolder& remote, const CopyOptions& options)
      : remote_(remote), lanes_(remote.channel(), options.outstanding) {}

  absl::Status Tree(const Folder& root, const std::string& destination) {
    return WalkTree(root, [&](const std::string& path, const FileInfo& info) {
      const std::string to = JoinPath(destination, path);
      if (!info.is_folder) return File(root, path, to);
      ++copied_.folders;
      return remote_.MakeFolder(to, info.mode | kOwnerBits);
    });
  }

  absl::Status File(const Folder& root, const std::string& source, const std::string& destination) {
    WEFT_ASSIGN_OR_RETURN(OpenedFile file, root.OpenFile(source));
    ++copied_.files;
    copied_.bytes += file.info.bytes;
    if (file.info.bytes <= kChunkBytes) {
      auto shared = std::make_shared<OpenedFile>(std::move(file));
      return Add(
          [this, shared, destination](Lane& lane) { return Whole(lane, *shared, destination); });
    }
    WEFT_ASSIGN_OR_RETURN(const uint64_t number, remote_.Begin(destination, file.info));
    auto outgoing = std::make_shared<Outgoing>(remote_, number, std::move(file));
    const uint64_t chunks = outgoing->chunks_left;
    for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
      WEFT_RETURN_IF_ERROR(Add([this, outgoing, destination, chunk](Lane& lane) {
        return weft::Annotate(Chunk(lane, *outgoing, chunk), destination);
      }));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Copied> Finish(const absl::Status& so_far) {
    WEFT_RETURN_IF_ERROR(lanes_.Finish());
    WEFT_RETURN_IF_ERROR(so_far);
    return copied_;
  }

 private:
  absl::Status Add(Lanes::Work work) {
    return lanes_.Add(std::move(work)) ? absl::OkStatus() : absl::CancelledError("a piece failed");
  }

  absl::Status Whole(Lane& lane, const OpenedFile& file, const std::string& destination) const {
    WEFT_ASSIGN_OR_RETURN(const size_t bytes, ReadLocal(lane, file, 0));
    return remote_.Put(lane, destination, file.info.mode, bytes);
  }

  absl::Status Chunk(Lane& lane, Outgoing& outgoing, uint64_t chunk) const {
    WEFT_ASSIGN_OR_RETURN(const size_t bytes, ReadLocal(lane, outgoing.file, chunk));
    WEFT_RETURN_IF_ERROR(remote_.WriteChunk(lane, outgoing.upload, chunk, bytes));
    if (--outgoing.chunks_left > 0) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(remote_.Commit(outgoing.upload));
    outgoing.committed = true;
    return absl::OkStatus();
  }

  const RemoteFolder& remote_;
  Copied copied_;
  Lanes lanes_;  // goes first: its threads use the rest
};

}  // namespace

absl::StatusOr<Copied> CopyToServer(const RemoteFolder& remote, const std::string& source,
                                    const std::string& destination, const CopyOptions& options) {
  const std::filesystem::path local(source);
  std::error_code error;
  if (!std::filesystem::is_directory(local, error)) {
    const std::string parent = local.has_parent_path() ? local.parent_path().string() : ".";
    WEFT_ASSIGN_OR_RETURN(const Folder folder, Folder::Open(parent));
    Upload upload(remote, options);
    return upload.Finish(upload.File(folder, local.filename(), destination));
  }
  WEFT_ASSIGN_OR_RETURN(const Folder folder, Folder::Open(source));
  if (!destination.empty()) {
    WEFT_ASSIGN_OR_RETURN(const FileInfo info, folder.Look(""));
    WEFT_RETURN_IF_ERROR(remote.MakeFolder(destination, info.mode | kOwnerBits));
  }
  Upload upload(remote, options);
  return upload.Finish(upload.Tree(folder, destination));
}

}  // namespace fileshare::client
