#include "examples/fileshare/plain_stream.h"

#include <sys/sendfile.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "examples/fileshare/atomic_file.h"
#include "examples/fileshare/chunk.h"
#include "examples/fileshare/relative_path.h"
#include "examples/fileshare/tree_walk.h"

namespace fileshare {
namespace {

constexpr uint32_t kFolderMark = 1u << 31;

struct Record {
  uint32_t path_bytes = 0;
  uint32_t mode = 0;
  uint64_t bytes = 0;
};

absl::Status SendRecord(int socket, const std::string& path, const FileInfo& info) {
  const Record record = {static_cast<uint32_t>(path.size()),
                         info.mode | (info.is_folder ? kFolderMark : 0), info.bytes};
  std::string bytes(reinterpret_cast<const char*>(&record), sizeof(record));
  bytes += path;
  return SendAll(socket, bytes.data(), bytes.size());
}

absl::Status SendFile(int socket, const Folder& root, const std::string& path,
                      const FileInfo& info) {
  WEFT_RETURN_IF_ERROR(SendRecord(socket, path, info));
  WEFT_ASSIGN_OR_RETURN(const OpenedFile file, root.OpenFile(path));
  for (uint64_t left = info.bytes; left > 0;) {
    const ssize_t sent = sendfile(socket, file.descriptor.get(), nullptr, left);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return weft::StatusFromErrno(errno, "sendfile");
    if (sent == 0) return absl::AbortedError(weft::StrCat(path, " has become shorter"));
    left -= static_cast<uint64_t>(sent);
  }
  return absl::OkStatus();
}

absl::Status ReceiveFile(int socket, const Folder& root, const std::string& path,
                         const Record& record, std::vector<std::byte>& buffer) {
  WEFT_ASSIGN_OR_RETURN(const Place place, FindPlace(root, path));
  WEFT_ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(place.folder, ".plain-"));
  for (uint64_t at = 0; at < record.bytes;) {
    const size_t most = static_cast<size_t>(std::min<uint64_t>(buffer.size(), record.bytes - at));
    const ssize_t got = recv(socket, buffer.data(), most, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return absl::UnavailableError("the sender has gone");
    WEFT_RETURN_IF_ERROR(file->WriteAt(at, buffer.data(), static_cast<size_t>(got)));
    at += static_cast<uint64_t>(got);
  }
  return file->Commit(place.folder, place.name, record.mode);
}

}  // namespace

absl::Status SendAll(int socket, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return weft::StatusFromErrno(errno, "send");
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return absl::OkStatus();
}

absl::Status ReceiveAll(int socket, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(socket, at, bytes, MSG_WAITALL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return absl::UnavailableError("the other side has gone");
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status SendTree(int socket, const Folder& root, uint32_t part, uint32_t parts) {
  uint64_t number = 0;
  WEFT_RETURN_IF_ERROR(WalkTree(root, [&](const std::string& path, const FileInfo& info) {
    if (info.is_folder) return SendRecord(socket, path, info);
    return number++ % parts == part ? SendFile(socket, root, path, info) : absl::OkStatus();
  }));
  return SendRecord(socket, "", {});
}

absl::Status ReceiveTree(int socket, const Folder& root) {
  std::vector<std::byte> buffer(kChunkBytes);
  while (true) {
    Record record;
    WEFT_RETURN_IF_ERROR(ReceiveAll(socket, &record, sizeof(record)));
    if (record.path_bytes == 0) return absl::OkStatus();
    if (record.path_bytes > kMaxPathBytes) return absl::DataLossError("not a record");
    std::string path(record.path_bytes, '\0');
    WEFT_RETURN_IF_ERROR(ReceiveAll(socket, path.data(), path.size()));
    WEFT_RETURN_IF_ERROR((record.mode & kFolderMark) != 0
                             ? root.MakeFolder(path, record.mode)
                             : ReceiveFile(socket, root, path, record, buffer));
  }
}

}  // namespace fileshare
