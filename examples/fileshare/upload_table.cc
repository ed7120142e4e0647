#include "examples/fileshare/upload_table.h"

#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "examples/fileshare/chunk.h"

namespace fileshare {
namespace {

constexpr char kPrefix[] = "upload-";
constexpr size_t kLeftoversAtOnce = 4096;

}  // namespace

UploadTable::UploadTable(const Folder& root, Folder uploads, const weft::Clock& clock)
    : root_(root), uploads_folder_(std::move(uploads)), clock_(clock) {}

absl::StatusOr<std::unique_ptr<UploadTable>> UploadTable::Open(const Folder& root,
                                                               const weft::Clock& clock) {
  WEFT_RETURN_IF_ERROR(root.MakeFolder(kUploadsFolder, 0700));
  WEFT_ASSIGN_OR_RETURN(Folder folder, root.Walk(kUploadsFolder));
  if (flock(folder.fd(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError("another server shares this folder");
  }
  std::unique_ptr<UploadTable> table(new UploadTable(root, std::move(folder), clock));
  WEFT_RETURN_IF_ERROR(table->RemoveLeftovers());
  return table;
}

absl::Status UploadTable::RemoveLeftovers() const {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Entry> left, uploads_folder_.List("", kLeftoversAtOnce));
  for (const Entry& entry : left) {
    if (entry.name.rfind(kPrefix, 0) == 0) unlinkat(uploads_folder_.fd(), entry.name.c_str(), 0);
  }
  return absl::OkStatus();
}

void UploadTable::DropRestingLocked() {
  const uint64_t now_ns = clock_.NowNs();
  for (auto at = uploads_.begin(); at != uploads_.end();) {
    const Upload& upload = *at->second;
    const bool rests = upload.writers == 0 && now_ns - upload.touched_ns > kUploadPatienceNs;
    at = rests ? uploads_.erase(at) : std::next(at);
  }
}

absl::StatusOr<uint64_t> UploadTable::Begin(std::string_view path, uint32_t mode, uint64_t bytes) {
  if (bytes > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        weft::StrCat("a file of ", bytes, " bytes; the limit is ", kMaxFileBytes));
  }
  WEFT_RETURN_IF_ERROR(FindPlace(root_, path).status());  // now, not after all the data
  auto upload = std::make_shared<Upload>();
  WEFT_ASSIGN_OR_RETURN(upload->file, AtomicFile::Create(uploads_folder_, kPrefix));
  upload->path = std::string(path);
  upload->mode = mode;
  upload->bytes = bytes;
  upload->chunks_missing = ChunksOf(bytes);
  upload->written.resize(upload->chunks_missing);
  upload->touched_ns = clock_.NowNs();
  const uint64_t number = weft::SecureRandom64();
  const std::lock_guard<std::mutex> lock(mutex_);
  DropRestingLocked();
  if (uploads_.size() >= kMaxUploads) {
    return absl::ResourceExhaustedError(weft::StrCat(kMaxUploads, " uploads are under way"));
  }
  uploads_[number] = std::move(upload);
  return number;
}

absl::StatusOr<std::shared_ptr<UploadTable::Upload>> UploadTable::FindLocked(
    uint64_t number) const {
  const auto found = uploads_.find(number);
  if (found != uploads_.end()) return found->second;
  return absl::NotFoundError("no such upload: committed, aborted, or dropped because it rested");
}

absl::StatusOr<size_t> UploadTable::BytesOf(uint64_t number, uint64_t chunk) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<Upload> upload, FindLocked(number));
  const uint64_t chunks = ChunksOf(upload->bytes);
  if (chunk < chunks) return BytesOfChunk(upload->bytes, chunk);
  return absl::InvalidArgumentError(weft::StrCat("chunk ", chunk, " of a file that has ", chunks));
}

// The table is open to others while the disk works. The file lives as long as somebody writes.
absl::Status UploadTable::Write(uint64_t number, uint64_t chunk, const std::byte* from,
                                size_t bytes) {
  std::shared_ptr<Upload> upload;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    WEFT_ASSIGN_OR_RETURN(upload, FindLocked(number));
    ++upload->writers;
  }
  const absl::Status status = upload->file->WriteAt(chunk * kChunkBytes, from, bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  --upload->writers;
  upload->touched_ns = clock_.NowNs();
  WEFT_RETURN_IF_ERROR(status);
  if (!upload->written[chunk]) --upload->chunks_missing;
  upload->written[chunk] = true;
  return absl::OkStatus();
}

// Once it is out of the table nobody writes any more: what others see does not change.
absl::Status UploadTable::Commit(uint64_t number) {
  std::shared_ptr<Upload> upload;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    WEFT_ASSIGN_OR_RETURN(upload, FindLocked(number));
    if (upload->chunks_missing > 0 || upload->writers > 0) {
      return absl::FailedPreconditionError(
          weft::StrCat("\"", upload->path, "\": ", upload->chunks_missing, " chunks are missing, ",
                       upload->writers, " are being written"));
    }
    uploads_.erase(number);
  }
  return CommitAt(upload->path, upload->mode, *upload->file);
}

void UploadTable::Abort(uint64_t number) {
  std::shared_ptr<Upload> upload;  // goes when the table is open again: its file is removed
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = uploads_.find(number);
  if (found == uploads_.end()) return;
  upload = std::move(found->second);
  uploads_.erase(found);
}

absl::Status UploadTable::Put(std::string_view path, uint32_t mode, const std::byte* from,
                              size_t bytes) {
  WEFT_ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(uploads_folder_, kPrefix));
  WEFT_RETURN_IF_ERROR(file->WriteAt(0, from, bytes));
  return CommitAt(path, mode, *file);
}

absl::Status UploadTable::CommitAt(std::string_view path, uint32_t mode, AtomicFile& file) const {
  WEFT_ASSIGN_OR_RETURN(const Place place, FindPlace(root_, path));
  return file.Commit(place.folder, place.name, mode);
}

}  // namespace fileshare
