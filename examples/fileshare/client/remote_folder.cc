#include "examples/fileshare/client/remote_folder.h"

#include "core/status.h"
#include "core/strings.h"
#include "examples/fileshare/chunk.h"
#include "examples/fileshare/relative_path.h"

namespace fileshare::client {
namespace {

FileInfo InfoFrom(const Attributes& attributes) {
  FileInfo info;
  info.is_folder = attributes.is_folder();
  info.mode = attributes.mode() & kModeBits;
  info.bytes = attributes.bytes();
  info.version = attributes.version();
  return info;
}

absl::Status CheckInfo(const FileInfo& info, const std::string& path) {
  if (info.bytes <= kMaxFileBytes) return absl::OkStatus();
  return absl::DataLossError(
      weft::StrCat("the server says that \"", path, "\" has ", info.bytes, " bytes"));
}

}  // namespace

RemoteFolder::RemoteFolder(weft::Channel& channel, const Options& options)
    : channel_(channel), stub_(channel), options_(options) {}

weft::CallOptions RemoteFolder::Plain() const {
  weft::CallOptions call;
  call.timeout_us = options_.timeout_us;
  return call;
}

weft::CallOptions RemoteFolder::With(Lane& lane) const {
  weft::CallOptions call = Plain();
  call.bulk = &lane.bulk;
  return call;
}

absl::StatusOr<FileInfo> RemoteFolder::Look(const std::string& path) const {
  StatRequest request;
  StatReply reply;
  request.set_path(path);
  WEFT_RETURN_IF_ERROR(weft::Annotate(stub_.Stat(request, &reply, Plain()), path));
  const FileInfo info = InfoFrom(reply.attributes());
  WEFT_RETURN_IF_ERROR(CheckInfo(info, path));
  return info;
}

absl::Status RemoteFolder::ForEach(const std::string& path,
                                   absl::FunctionRef<absl::Status(const Entry&)> visit) const {
  ListRequest request;
  ListReply reply;
  request.set_path(path);
  uint64_t visited = 0;
  do {
    WEFT_RETURN_IF_ERROR(weft::Annotate(stub_.List(request, &reply, Plain()), path));
    const auto told = static_cast<size_t>(reply.entries_size());
    if (told > kMaxListEntries || (told == 0 && reply.more())) {
      return absl::DataLossError(
          weft::StrCat("no list of a folder: \"", path, "\", ", told, " entries at a time"));
    }
    for (const ListReply::Entry& listed : reply.entries()) {
      const Entry entry = {listed.name(), InfoFrom(listed.attributes())};
      // Else a list without end, or a name that leads elsewhere.
      if (!IsName(entry.name) || entry.name <= request.after()) {
        return absl::DataLossError(weft::StrCat("no list of a folder: \"", path, "\""));
      }
      WEFT_RETURN_IF_ERROR(CheckInfo(entry.info, entry.name));
      if (++visited > options_.max_entries) {
        return absl::ResourceExhaustedError(
            weft::StrCat("\"", path, "\" has more than ", options_.max_entries,
                         " files and folders; put them into several folders"));
      }
      WEFT_RETURN_IF_ERROR(visit(entry));
      request.set_after(entry.name);
    }
  } while (reply.more());
  return absl::OkStatus();
}

absl::Status RemoteFolder::MakeFolder(const std::string& path, uint32_t mode) const {
  MakeFolderRequest request;
  MakeFolderReply reply;
  request.set_path(path);
  request.set_mode(mode);
  return weft::Annotate(stub_.MakeFolder(request, &reply, Plain()), path);
}

absl::StatusOr<size_t> RemoteFolder::ReadChunk(Lane& lane, const std::string& path,
                                               const FileInfo& info, uint64_t chunk) const {
  const size_t bytes = BytesOfChunk(info.bytes, chunk);
  ReadRequest request;
  ReadReply reply;
  request.set_path(path);
  request.set_version(info.version);
  request.set_offset(chunk * kChunkBytes);
  request.set_bytes(static_cast<uint32_t>(bytes));
  request.set_without_crc32c(!options_.crc32c);
  lane.bulk.Clear();
  lane.bulk.Receive(lane.Front(bytes));
  WEFT_RETURN_IF_ERROR(weft::Annotate(stub_.Read(request, &reply, With(lane)), path));
  const auto received = lane.bulk.Received(reply.data());
  if (!received.ok()) return weft::Annotate(received.status(), path);
  if (received->size() == bytes) return bytes;
  return absl::AbortedError(weft::StrCat("\"", path, "\" has become shorter meanwhile"));
}

absl::Status RemoteFolder::Put(Lane& lane, const std::string& path, uint32_t mode,
                               size_t bytes) const {
  PutRequest request;
  PutReply reply;
  request.set_path(path);
  request.set_mode(mode);
  lane.bulk.Clear();
  lane.bulk.Send(lane.Front(bytes), request.mutable_data(), {options_.crc32c});
  return weft::Annotate(stub_.Put(request, &reply, With(lane)), path);
}

absl::StatusOr<uint64_t> RemoteFolder::Begin(const std::string& path, const FileInfo& info) const {
  BeginRequest request;
  BeginReply reply;
  request.set_path(path);
  request.set_mode(info.mode);
  request.set_bytes(info.bytes);
  WEFT_RETURN_IF_ERROR(weft::Annotate(stub_.Begin(request, &reply, Plain()), path));
  return reply.upload();
}

absl::Status RemoteFolder::WriteChunk(Lane& lane, uint64_t upload, uint64_t chunk,
                                      size_t bytes) const {
  WriteRequest request;
  WriteReply reply;
  request.set_upload(upload);
  request.set_chunk(chunk);
  lane.bulk.Clear();
  lane.bulk.Send(lane.Front(bytes), request.mutable_data(), {options_.crc32c});
  return stub_.Write(request, &reply, With(lane));
}

absl::Status RemoteFolder::Commit(uint64_t upload) const {
  CommitRequest request;
  CommitReply reply;
  request.set_upload(upload);
  return stub_.Commit(request, &reply, Plain());
}

void RemoteFolder::Abort(uint64_t upload) const {
  AbortRequest request;
  AbortReply reply;
  request.set_upload(upload);
  stub_.Abort(request, &reply, Plain()).IgnoreError();  // it is dropped in a minute anyway
}

}  // namespace fileshare::client
