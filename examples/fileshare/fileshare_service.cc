#include "examples/fileshare/fileshare_service.h"

#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "examples/fileshare/chunk.h"
#include "examples/fileshare/relative_path.h"
#include "weft/bulk.h"
#include "weft/service.h"

namespace fileshare {
namespace {

// The folder of uploads is nobody's business: there is no such thing.
absl::Status CheckNotReserved(std::string_view path) {
  const std::string_view first = path.substr(0, path.find('/'));
  return first == kUploadsFolder
             ? absl::NotFoundError(weft::StrCat("\"", path, "\" is the server's own"))
             : absl::OkStatus();
}

void Fill(const FileInfo& info, Attributes* to) {
  to->set_is_folder(info.is_folder);
  to->set_mode(info.mode);
  to->set_bytes(info.bytes);
  to->set_version(info.version);
}

absl::Status CheckChunkBytes(uint64_t bytes) {
  if (bytes <= kChunkBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      weft::StrCat("a chunk of ", bytes, " bytes; the limit is ", kChunkBytes));
}

}  // namespace

absl::Status FileShareService::Stat(weft::ServerContext&, const StatRequest& request,
                                    StatReply* reply) {
  WEFT_RETURN_IF_ERROR(CheckNotReserved(request.path()));
  WEFT_ASSIGN_OR_RETURN(const FileInfo info, root_.Look(request.path()));
  Fill(info, reply->mutable_attributes());
  return absl::OkStatus();
}

absl::Status FileShareService::List(weft::ServerContext&, const ListRequest& request,
                                    ListReply* reply) {
  WEFT_RETURN_IF_ERROR(CheckNotReserved(request.path()));
  WEFT_ASSIGN_OR_RETURN(const Folder folder, root_.Walk(request.path()));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Entry> entries,
                        folder.List(request.after(), kMaxListEntries + 1));
  reply->set_more(entries.size() > kMaxListEntries);
  for (size_t i = 0; i < entries.size() && i < kMaxListEntries; ++i) {
    if (request.path().empty() && entries[i].name == kUploadsFolder) continue;
    ListReply::Entry* entry = reply->add_entries();
    entry->set_name(entries[i].name);
    Fill(entries[i].info, entry->mutable_attributes());
  }
  return absl::OkStatus();
}

absl::Status FileShareService::Read(weft::ServerContext& context, const ReadRequest& request,
                                    ReadReply* reply) {
  WEFT_RETURN_IF_ERROR(CheckNotReserved(request.path()));
  WEFT_RETURN_IF_ERROR(CheckChunkBytes(request.bytes()));
  WEFT_ASSIGN_OR_RETURN(const OpenedFile file, root_.OpenFile(request.path()));
  if (request.version() != 0 && request.version() != file.info.version) {
    return absl::AbortedError(weft::StrCat("\"", request.path(), "\" has changed meanwhile"));
  }
  if (request.offset() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        weft::StrCat("offset ", request.offset(), " is beyond the largest file"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<weft::Buffer> buffer,
                        buffers_->Allocate(kChunkBytes));
  WEFT_ASSIGN_OR_RETURN(const size_t bytes,
                        file.ReadAt(request.offset(), buffer->bytes().data(), request.bytes()));
  weft::BulkOptions options;
  options.crc32c = !request.without_crc32c();
  return context.bulk().Push(buffer->slice(0, bytes), reply->mutable_data(), options);
}

absl::StatusOr<UploadTable*> FileShareService::UploadsFor(std::string_view path) const {
  WEFT_RETURN_IF_ERROR(CheckNotReserved(path));
  if (uploads_ == nullptr) return absl::PermissionDeniedError("this server serves reading only");
  return uploads_;
}

absl::StatusOr<std::unique_ptr<weft::Buffer>> FileShareService::Fetch(weft::ServerContext& context,
                                                                      const weft::Bulk& data) {
  WEFT_RETURN_IF_ERROR(CheckChunkBytes(data.length()));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<weft::Buffer> buffer, buffers_->Allocate(kChunkBytes));
  WEFT_RETURN_IF_ERROR(context.bulk().Fetch(data, buffer->slice(0, data.length())));
  return buffer;
}

absl::Status FileShareService::MakeFolder(weft::ServerContext&, const MakeFolderRequest& request,
                                          MakeFolderReply*) {
  WEFT_RETURN_IF_ERROR(UploadsFor(request.path()).status());
  return root_.MakeFolder(request.path(), request.mode());
}

absl::Status FileShareService::Put(weft::ServerContext& context, const PutRequest& request,
                                   PutReply*) {
  WEFT_ASSIGN_OR_RETURN(UploadTable* const uploads, UploadsFor(request.path()));
  WEFT_ASSIGN_OR_RETURN(const auto buffer, Fetch(context, request.data()));
  return uploads->Put(request.path(), request.mode(), buffer->bytes().data(),
                      request.data().length());
}

absl::Status FileShareService::Begin(weft::ServerContext&, const BeginRequest& request,
                                     BeginReply* reply) {
  WEFT_ASSIGN_OR_RETURN(UploadTable* const uploads, UploadsFor(request.path()));
  WEFT_ASSIGN_OR_RETURN(const uint64_t upload,
                        uploads->Begin(request.path(), request.mode(), request.bytes()));
  reply->set_upload(upload);
  return absl::OkStatus();
}

absl::Status FileShareService::Write(weft::ServerContext& context, const WriteRequest& request,
                                     WriteReply*) {
  WEFT_ASSIGN_OR_RETURN(UploadTable* const uploads, UploadsFor(""));
  WEFT_ASSIGN_OR_RETURN(const size_t bytes, uploads->BytesOf(request.upload(), request.chunk()));
  if (request.data().length() != bytes) {
    return absl::InvalidArgumentError(weft::StrCat("chunk ", request.chunk(), " has ", bytes,
                                                   " bytes, not ", request.data().length()));
  }
  WEFT_ASSIGN_OR_RETURN(const auto buffer, Fetch(context, request.data()));
  return uploads->Write(request.upload(), request.chunk(), buffer->bytes().data(), bytes);
}

absl::Status FileShareService::Commit(weft::ServerContext&, const CommitRequest& request,
                                      CommitReply*) {
  WEFT_ASSIGN_OR_RETURN(UploadTable* const uploads, UploadsFor(""));
  return uploads->Commit(request.upload());
}

absl::Status FileShareService::Abort(weft::ServerContext&, const AbortRequest& request,
                                     AbortReply*) {
  WEFT_ASSIGN_OR_RETURN(UploadTable* const uploads, UploadsFor(""));
  uploads->Abort(request.upload());
  return absl::OkStatus();
}

}  // namespace fileshare
