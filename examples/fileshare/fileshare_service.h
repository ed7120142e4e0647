// The service of fileshare.proto on a folder of this machine.
//
// A file's bytes go from the page cache into a registered buffer (pread), and from there into the
// client's memory by the server's one-sided write; uploads take the same way back. Why not register
// a mapping of the file itself, and save that copy? A file that somebody truncates meanwhile would
// kill the server (SIGBUS) instead of giving a short read; a mapping has to be registered for each
// file, which on RDMA devices costs more than the copy and pins the page cache; and the pages would
// come into memory under the engine's hands, which must not wait for a disk. The checksum reads
// each byte anyway, and finds it in the processor's cache after the copy.
//
// Threads:   handlers run on an executor, several at once: they wait for disk and network.
// Lifetime:  folder, uploads and buffers outlive the handlers.
// Errors:    as fileshare.proto says.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/fileshare/fileshare.pb.h"
#include "examples/fileshare/fileshare.weft.h"
#include "examples/fileshare/folder.h"
#include "examples/fileshare/upload_table.h"
#include "transport/buffer_pool.h"

namespace fileshare {

class FileShareService final : public FileShare::Service {
 public:
  // `uploads` null: reading only.
  FileShareService(const Folder& root, UploadTable* uploads, weft::BufferPool* buffers)
      : root_(root), uploads_(uploads), buffers_(buffers) {}

  absl::Status Stat(weft::ServerContext& context, const StatRequest& request,
                    StatReply* reply) override;
  absl::Status List(weft::ServerContext& context, const ListRequest& request,
                    ListReply* reply) override;
  absl::Status Read(weft::ServerContext& context, const ReadRequest& request,
                    ReadReply* reply) override;
  absl::Status MakeFolder(weft::ServerContext& context, const MakeFolderRequest& request,
                          MakeFolderReply* reply) override;
  absl::Status Put(weft::ServerContext& context, const PutRequest& request,
                   PutReply* reply) override;
  absl::Status Begin(weft::ServerContext& context, const BeginRequest& request,
                     BeginReply* reply) override;
  absl::Status Write(weft::ServerContext& context, const WriteRequest& request,
                     WriteReply* reply) override;
  absl::Status Commit(weft::ServerContext& context, const CommitRequest& request,
                      CommitReply* reply) override;
  absl::Status Abort(weft::ServerContext& context, const AbortRequest& request,
                     AbortReply* reply) override;

 private:
  absl::StatusOr<UploadTable*> UploadsFor(std::string_view path) const;
  // What the request's field tells of, in a buffer of its own.
  absl::StatusOr<std::unique_ptr<weft::Buffer>> Fetch(weft::ServerContext& context,
                                                      const weft::Bulk& data);

  const Folder& root_;
  UploadTable* const uploads_;
  weft::BufferPool* const buffers_;
};

}  // namespace fileshare
