#include "embed/rocksdb/weft_file_system.h"

#include <sys/time.h>

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "embed/rocksdb/file_client.h"
#include "embed/rocksdb/weft_uri.h"
#include "rocksdb/utilities/object_registry.h"

namespace weft::embed {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using RocksSlice = rocksdb::Slice;

// How far a file that is read from its beginning to its end is read ahead: some calls for a log of
// 64 MiB, and no more than a quarter of what one call may bring.
constexpr size_t kReadAheadBytes = size_t{256} << 10;

// What a compaction reads at a time, where the options do not say. The tables of RocksDB's are read
// block by block otherwise, for its own file system has the kernel's readahead.
constexpr size_t kCompactionReadBytes = size_t{1} << 20;

// RocksDB's log is written when so much of it is there, or is so old.
constexpr size_t kLogBufferBytes = size_t{64} << 10;
constexpr uint64_t kLogFlushUs = 5'000'000;

IOStatus ToRocks(const absl::Status& status) {
  if (status.ok()) return IOStatus::OK();
  const std::string text = StrCat("weft: ", ToStd(status.message()));
  IOStatus result;
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return IOStatus::PathNotFound(text);
    case absl::StatusCode::kInvalidArgument:
      return IOStatus::InvalidArgument(text);
    case absl::StatusCode::kUnimplemented:
      return IOStatus::NotSupported(text);
    case absl::StatusCode::kOutOfRange:
      return IOStatus::NoSpace(text);
    case absl::StatusCode::kFailedPrecondition:
      return IOStatus::IOFenced(text);
    case absl::StatusCode::kDataLoss:
      result = IOStatus::IOError(text);
      result.SetDataLoss(true);
      return result;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
      result = IOStatus::IOError(text);
      result.SetRetryable(true);
      return result;
    default:
      return IOStatus::IOError(text);
  }
}

MutableByteSpan BytesOf(char* scratch, size_t bytes) {
  return {reinterpret_cast<std::byte*>(scratch), bytes};
}

ByteSpan BytesOf(const RocksSlice& slice) {
  return {reinterpret_cast<const std::byte*>(slice.data()), slice.size()};
}

class SequentialFile final : public rocksdb::FSSequentialFile {
 public:
  SequentialFile(FileClient& client, std::unique_ptr<FileClient::File> file)
      : client_(client), file_(std::move(file)) {}

  IOStatus Read(size_t n, const IOOptions&, RocksSlice* result, char* scratch,
                IODebugContext*) override {
    size_t done = 0;
    while (done < n) {
      if (place_ == buffer_.size()) {
        const IOStatus filled = Fill();
        if (!filled.ok()) return filled;
        if (buffer_.empty()) break;
      }
      const size_t some = std::min(n - done, buffer_.size() - place_);
      std::memcpy(scratch + done, buffer_.data() + place_, some);
      done += some;
      place_ += some;
    }
    *result = RocksSlice(scratch, done);
    return IOStatus::OK();
  }

  IOStatus Skip(uint64_t n) override {
    const size_t some = std::min<uint64_t>(n, buffer_.size() - place_);
    place_ += some;
    offset_ += n - some;
    if (n > some) {
      buffer_.clear();
      place_ = 0;
    }
    return IOStatus::OK();
  }

  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }

 private:
  IOStatus Fill() {
    buffer_.resize(kReadAheadBytes);
    place_ = 0;
    const absl::StatusOr<size_t> got =
        client_.Read(*file_, offset_, BytesOf(buffer_.data(), buffer_.size()));
    buffer_.resize(got.value_or(0));
    offset_ += buffer_.size();
    return ToRocks(got.status());
  }

  FileClient& client_;
  const std::unique_ptr<FileClient::File> file_;
  uint64_t offset_ = 0;  // behind the buffer
  std::string buffer_;
  size_t place_ = 0;  // in it
};

class RandomAccessFile final : public rocksdb::FSRandomAccessFile {
 public:
  RandomAccessFile(FileClient& client, std::unique_ptr<FileClient::File> file)
      : client_(client), file_(std::move(file)) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, RocksSlice* result, char* scratch,
                IODebugContext*) const override {
    const absl::StatusOr<size_t> got = client_.Read(*file_, offset, BytesOf(scratch, n));
    *result = RocksSlice(scratch, got.value_or(0));
    return ToRocks(got.status());
  }

  IOStatus MultiRead(rocksdb::FSReadRequest* requests, size_t count, const IOOptions&,
                     IODebugContext*) override {
    std::vector<PieceToRead> pieces(count);
    for (size_t i = 0; i < count; ++i) {
      pieces[i].offset = requests[i].offset;
      pieces[i].into = BytesOf(requests[i].scratch, requests[i].len);
    }
    client_.ReadMany(*file_, absl::MakeSpan(pieces));
    for (size_t i = 0; i < count; ++i) {
      requests[i].result = RocksSlice(requests[i].scratch, pieces[i].got);
      requests[i].status = ToRocks(pieces[i].status);
    }
    return IOStatus::OK();
  }

  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }

 private:
  FileClient& client_;
  const std::unique_ptr<FileClient::File> file_;
};

class WritableFile final : public rocksdb::FSWritableFile {
 public:
  WritableFile(FileClient& client, std::unique_ptr<FileClient::File> file,
               const FileOptions& options)
      : rocksdb::FSWritableFile(options), client_(client), file_(std::move(file)) {}

  using rocksdb::FSWritableFile::Append;
  IOStatus Append(const RocksSlice& data, const IOOptions&, IODebugContext*) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ToRocks(client_.Append(*file_, BytesOf(data)));
  }
  IOStatus Truncate(uint64_t bytes, const IOOptions&, IODebugContext*) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes == file_->bytes()) return IOStatus::OK();
    return ToRocks(client_.Truncate(*file_, bytes));
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ToRocks(client_.Close(*file_));
  }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ToRocks(client_.Sync(*file_));
  }
  bool IsSyncThreadSafe() const override { return true; }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return file_->bytes();
  }
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }

 private:
  FileClient& client_;
  std::mutex mutex_;
  const std::unique_ptr<FileClient::File> file_;
};

class Folder final : public rocksdb::FSDirectory {
 public:
  Folder(FileClient& client, std::string name) : client_(client), name_(std::move(name)) {}
  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return ToRocks(client_.SyncFolder(name_));
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

 private:
  FileClient& client_;
  const std::string name_;
};

class HeldFileLock final : public rocksdb::FileLock {
 public:
  explicit HeldFileLock(std::string name) : name(std::move(name)) {}
  const std::string name;
};

// RocksDB's own log, for people: what cannot be written is dropped.
class FileLogger final : public rocksdb::Logger {
 public:
  FileLogger(FileClient& client, std::unique_ptr<FileClient::File> file)
      : rocksdb::Logger(rocksdb::InfoLogLevel::INFO_LEVEL),
        client_(client),
        file_(std::move(file)) {}
  ~FileLogger() override { Flush(); }

  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    timeval now = {};
    ::gettimeofday(&now, nullptr);
    std::tm parts = {};
    ::localtime_r(&now.tv_sec, &parts);
    char line[kMaxLineBytes];
    int used = std::snprintf(line, sizeof(line), "%04d/%02d/%02d-%02d:%02d:%02d.%06d ",
                             parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
                             parts.tm_min, parts.tm_sec, static_cast<int>(now.tv_usec));
    const int more =
        std::vsnprintf(line + used, sizeof(line) - static_cast<size_t>(used), format, arguments);
    used = std::min(used + std::max(more, 0), static_cast<int>(sizeof(line)) - 1);
    const std::lock_guard<std::mutex> lock(mutex_);
    buffer_.append(line, static_cast<size_t>(used));
    if (buffer_.back() != '\n') buffer_.push_back('\n');
    const uint64_t now_us = uint64_t{1'000'000} * static_cast<uint64_t>(now.tv_sec) +
                            static_cast<uint64_t>(now.tv_usec);
    if (buffer_.size() < kLogBufferBytes && now_us - flushed_us_ < kLogFlushUs) return;
    flushed_us_ = now_us;
    Write();
  }
  size_t GetLogFileSize() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return file_->bytes() + buffer_.size();
  }
  void Flush() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    Write();
  }

 protected:
  rocksdb::Status CloseImpl() override {
    Flush();
    return rocksdb::Status::OK();
  }

 private:
  // RocksDB's longest lines are dumps of options and of levels, of some KiB.
  static constexpr size_t kMaxLineBytes = size_t{16} << 10;

  void Write() {
    if (buffer_.empty()) return;
    client_.Append(*file_, AsBytes(buffer_)).IgnoreError();
    buffer_.clear();
  }

  FileClient& client_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  const std::unique_ptr<FileClient::File> file_;
  std::string buffer_;
  uint64_t flushed_us_ = 0;
};

class WeftFileSystem final : public rocksdb::FileSystem {
 public:
  WeftFileSystem(std::unique_ptr<FileClient> client, std::string folder)
      : client_(std::move(client)), folder_(std::move(folder)) {}

  static const char* kClassName() { return "WeftFileSystem"; }
  const char* Name() const override { return kClassName(); }

  IOStatus NewSequentialFile(const std::string& path, const FileOptions&,
                             std::unique_ptr<rocksdb::FSSequentialFile>* result,
                             IODebugContext*) override {
    return OpenAs(path, FileClient::Mode::kRead, result, [this](auto file) {
      return std::make_unique<SequentialFile>(*client_, std::move(file));
    });
  }
  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions&,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                               IODebugContext*) override {
    return OpenAs(path, FileClient::Mode::kRead, result, [this](auto file) {
      return std::make_unique<RandomAccessFile>(*client_, std::move(file));
    });
  }
  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* result,
                           IODebugContext*) override {
    return OpenToWrite(path, FileClient::Mode::kWriteNew, options, result);
  }
  IOStatus ReopenWritableFile(const std::string& path, const FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* result,
                              IODebugContext*) override {
    const IOStatus opened = OpenToWrite(path, FileClient::Mode::kWriteExisting, options, result);
    if (!opened.IsPathNotFound()) return opened;
    return OpenToWrite(path, FileClient::Mode::kWriteNew, options, result);
  }
  IOStatus ReuseWritableFile(const std::string& path, const std::string& old_path,
                             const FileOptions& options,
                             std::unique_ptr<rocksdb::FSWritableFile>* result,
                             IODebugContext* debug) override {
    const IOStatus renamed = RenameFile(old_path, path, options.io_options, debug);
    if (!renamed.ok()) return renamed;
    return OpenToWrite(path, FileClient::Mode::kWriteNew, options, result);
  }
  IOStatus NewDirectory(const std::string& path, const IOOptions&,
                        std::unique_ptr<rocksdb::FSDirectory>* result, IODebugContext*) override {
    return With(path, [&](const std::string& name) -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(const FileClient::Facts facts, client_->Stat(name));
      if (!facts.is_folder) return absl::InvalidArgumentError(StrCat(path, " is no folder"));
      *result = std::make_unique<Folder>(*client_, name);
      return absl::OkStatus();
    });
  }

  IOStatus FileExists(const std::string& path, const IOOptions&, IODebugContext*) override {
    const IOStatus found =
        With(path, [this](const std::string& name) { return client_->Stat(name).status(); });
    return found.IsPathNotFound() ? IOStatus::NotFound(path) : found;
  }
  IOStatus GetChildren(const std::string& path, const IOOptions&, std::vector<std::string>* result,
                       IODebugContext*) override {
    const IOStatus listed = With(path, [&](const std::string& name) -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(*result, client_->List(name));
      return absl::OkStatus();
    });
    return listed.IsPathNotFound() ? IOStatus::NotFound(path) : listed;
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions&, IODebugContext*) override {
    return With(path, [this](const std::string& name) { return client_->Remove(name); });
  }
  IOStatus Truncate(const std::string& path, size_t bytes, const IOOptions&,
                    IODebugContext*) override {
    return With(path, [&](const std::string& name) { return client_->Truncate(name, bytes); });
  }
  IOStatus CreateDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    return With(path, [this](const std::string& name) { return MakeFolder(name); });
  }
  IOStatus CreateDirIfMissing(const std::string& path, const IOOptions&, IODebugContext*) override {
    return With(path, [this](const std::string& name) -> absl::Status {
      const absl::Status made = MakeFolder(name);
      if (!absl::IsAlreadyExists(made)) return made;
      WEFT_ASSIGN_OR_RETURN(const FileClient::Facts facts, client_->Stat(name));
      return facts.is_folder ? absl::OkStatus() : made;
    });
  }
  IOStatus DeleteDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    return With(path, [this](const std::string& name) { return client_->RemoveFolder(name); });
  }
  IOStatus GetFileSize(const std::string& path, const IOOptions&, uint64_t* bytes,
                       IODebugContext*) override {
    return WithFacts(path, [bytes](const FileClient::Facts& facts) { *bytes = facts.bytes; });
  }
  IOStatus GetFileModificationTime(const std::string& path, const IOOptions&, uint64_t* time_s,
                                   IODebugContext*) override {
    return WithFacts(path,
                     [time_s](const FileClient::Facts& facts) { *time_s = facts.modified_s; });
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&,
                      IODebugContext*) override {
    return With(from, [&](const std::string& source) -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(const std::string target, NameOf(to));
      return client_->Rename(source, target);
    });
  }
  IOStatus LinkFile(const std::string& from, const std::string& to, const IOOptions&,
                    IODebugContext*) override {
    return With(from, [&](const std::string& source) -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(const std::string target, NameOf(to));
      return client_->Link(source, target);
    });
  }
  IOStatus NumFileLinks(const std::string& path, const IOOptions&, uint64_t* count,
                        IODebugContext*) override {
    return WithFacts(path, [count](const FileClient::Facts& facts) { *count = facts.links; });
  }
  IOStatus AreFilesSame(const std::string& first, const std::string& second, const IOOptions&,
                        bool* result, IODebugContext*) override {
    uint64_t one = 0;
    uint64_t other = 0;
    IOStatus status =
        WithFacts(first, [&one](const FileClient::Facts& facts) { one = facts.identity; });
    if (status.ok()) {
      status =
          WithFacts(second, [&other](const FileClient::Facts& facts) { other = facts.identity; });
    }
    *result = one == other;
    return status;
  }
  IOStatus IsDirectory(const std::string& path, const IOOptions&, bool* is_folder,
                       IODebugContext*) override {
    return WithFacts(path,
                     [is_folder](const FileClient::Facts& facts) { *is_folder = facts.is_folder; });
  }
  IOStatus GetFreeSpace(const std::string& path, const IOOptions&, uint64_t* bytes,
                        IODebugContext*) override {
    return WithFacts(path, [bytes](const FileClient::Facts& facts) { *bytes = facts.free_bytes; });
  }

  IOStatus LockFile(const std::string& path, const IOOptions&, rocksdb::FileLock** lock,
                    IODebugContext*) override {
    *lock = nullptr;
    absl::StatusOr<std::string> name = NameOf(path);
    if (!name.ok()) return ToRocks(name.status());
    const absl::Status locked = client_->Lock(*name);
    if (absl::IsFailedPrecondition(locked)) {
      return IOStatus::IOError(StrCat("weft: ", ToStd(locked.message())));
    }
    if (locked.ok()) *lock = new HeldFileLock(*std::move(name));
    return ToRocks(locked);
  }
  IOStatus UnlockFile(rocksdb::FileLock* lock, const IOOptions&, IODebugContext*) override {
    const std::unique_ptr<HeldFileLock> held(static_cast<HeldFileLock*>(lock));
    return ToRocks(client_->Unlock(held->name));
  }

  IOStatus NewLogger(const std::string& path, const IOOptions&,
                     std::shared_ptr<rocksdb::Logger>* result, IODebugContext*) override {
    std::unique_ptr<FileLogger> logger;
    const IOStatus opened = OpenAs(path, FileClient::Mode::kWriteNew, &logger, [this](auto file) {
      return std::make_unique<FileLogger>(*client_, std::move(file));
    });
    *result = std::move(logger);
    return opened;
  }
  IOStatus GetTestDirectory(const IOOptions&, std::string* path, IODebugContext*) override {
    *path = "/test";
    return IOStatus::OK();
  }
  IOStatus GetAbsolutePath(const std::string& path, const IOOptions&, std::string* result,
                           IODebugContext*) override {
    *result = path.starts_with('/') ? path : "/" + path;
    return IOStatus::OK();
  }
  FileOptions OptimizeForCompactionTableRead(
      const FileOptions& options, const rocksdb::ImmutableDBOptions& db_options) const override {
    FileOptions result = rocksdb::FileSystem::OptimizeForCompactionTableRead(options, db_options);
    if (result.compaction_readahead_size == 0) {
      result.compaction_readahead_size = kCompactionReadBytes;
    }
    return result;
  }

 private:
  // The name of file.proto for a path of RocksDB's.
  absl::StatusOr<std::string> NameOf(std::string_view path) const {
    std::string name = folder_;
    while (!path.empty()) {
      const size_t slash = std::min(path.find('/'), path.size());
      const std::string_view part = path.substr(0, slash);
      path.remove_prefix(std::min(slash + 1, path.size()));
      if (part == "..") return absl::InvalidArgumentError("a path of Weft's has no \"..\"");
      if (part.empty() || part == ".") continue;
      if (!name.empty()) name.push_back('/');
      name.append(part);
    }
    return name;
  }

  template <class Work>
  IOStatus With(const std::string& path, Work work) {
    const absl::StatusOr<std::string> name = NameOf(path);
    return ToRocks(name.ok() ? work(*name) : name.status());
  }
  template <class Use>
  IOStatus WithFacts(const std::string& path, Use use) {
    return With(path, [&](const std::string& name) -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(const FileClient::Facts facts, client_->Stat(name));
      use(facts);
      return absl::OkStatus();
    });
  }
  template <class Result, class Make>
  IOStatus OpenAs(const std::string& path, FileClient::Mode mode, Result* result, Make make) {
    result->reset();
    return With(path, [&](const std::string& name) -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(auto file, client_->OpenFile(name, mode));
      *result = make(std::move(file));
      return absl::OkStatus();
    });
  }
  IOStatus OpenToWrite(const std::string& path, FileClient::Mode mode, const FileOptions& options,
                       std::unique_ptr<rocksdb::FSWritableFile>* result) {
    return OpenAs(path, mode, result, [&](auto file) {
      return std::make_unique<WritableFile>(*client_, std::move(file), options);
    });
  }

  // With the folders above, which are nobody else's to make: the URI names the first of them.
  absl::Status MakeFolder(const std::string& name) {
    absl::Status made = client_->MakeFolder(name);
    const size_t slash = name.rfind('/');
    if (!absl::IsNotFound(made) || slash == std::string::npos) return made;
    const absl::Status above = MakeFolder(name.substr(0, slash));
    if (!above.ok() && !absl::IsAlreadyExists(above)) return above;
    return client_->MakeFolder(name);
  }

  const std::unique_ptr<FileClient> client_;
  const std::string folder_;  // of the URI
};

}  // namespace

absl::StatusOr<std::unique_ptr<rocksdb::FileSystem>> OpenWeftFileSystem(const std::string& uri) {
  WEFT_ASSIGN_OR_RETURN(WeftUri where, ParseWeftUri("weft", uri, {"one_sided"}));
  FileClientOptions options;
  options.address = where.address;
  options.channel = std::move(where.channel);
  options.patience_us = where.patience_us;
  options.crc32c = where.crc32c;
  options.one_sided = where.own["one_sided"] != "0";
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<FileClient> client, FileClient::Open(options));
  return MakeFileSystem(std::move(client), std::move(where.folder));
}

void RegisterWeftFileSystem() { RegisterFileSystem("weft", OpenWeftFileSystem); }

std::unique_ptr<rocksdb::FileSystem> MakeFileSystem(std::unique_ptr<FileClient> client,
                                                    std::string folder) {
  return std::make_unique<WeftFileSystem>(std::move(client), std::move(folder));
}

void RegisterFileSystem(const std::string& scheme, OpenFileSystem open) {
  using Library = rocksdb::ObjectLibrary;
  Library::Default()->AddFactory<rocksdb::FileSystem>(
      Library::PatternEntry(scheme, false).AddSeparator("://"),
      [open](const std::string& uri, std::unique_ptr<rocksdb::FileSystem>* guard,
             std::string* error) -> rocksdb::FileSystem* {
        absl::StatusOr<std::unique_ptr<rocksdb::FileSystem>> files = open(uri);
        if (!files.ok()) {
          *error = StrCat("weft: ", ToStd(files.status().message()));
          return nullptr;
        }
        *guard = *std::move(files);
        return guard->get();
      });
}

}  // namespace weft::embed
