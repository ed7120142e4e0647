#include "examples/kv/upgrade.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>

#include "core/status.h"
#include "core/strings.h"

namespace kv {
namespace {

// In front of the records; their number stands behind them. Numbers as this host has them: the file
// is for the next process of this host.
constexpr std::string_view kMagic = "kv records 1\n";
// Between two looks at the lock. Calls wait for it: an upgrade takes so much longer.
constexpr int kLookMs = 1;

void Append(uint64_t number, std::string* to) {
  to->append(reinterpret_cast<const char*>(&number), sizeof(number));
}
void Append(std::string_view text, std::string* to) {
  Append(uint64_t{text.size()}, to);
  to->append(text);
}

// Takes what Append() has written off the front of a text.
class Reader {
 public:
  explicit Reader(std::string_view text) : left_(text) {}

  bool Number(uint64_t* number) {
    if (left_.size() < sizeof(*number)) return false;
    std::memcpy(number, left_.data(), sizeof(*number));
    left_.remove_prefix(sizeof(*number));
    return true;
  }
  bool Text(std::string_view* text) {
    uint64_t bytes = 0;
    if (!Number(&bytes) || bytes > left_.size()) return false;
    *text = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return true;
  }
  bool at_end() const { return left_.empty(); }

 private:
  std::string_view left_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KeptRecords>> KeptRecords::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return weft::StatusFromErrno(errno, weft::StrCat("open ", path));
  return std::unique_ptr<KeptRecords>(new KeptRecords(path, fd));
}

KeptRecords::~KeptRecords() { ::close(fd_); }  // and unlocks

absl::Status KeptRecords::Lock(const std::atomic<bool>& stop) {
  while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return weft::StatusFromErrno(errno, weft::StrCat("lock ", path_));
    }
    if (stop) return absl::CancelledError("told to stop before the records came");
    ::poll(nullptr, 0, kLookMs);
  }
  return absl::OkStatus();
}

// The file is empty afterwards: if this process is killed, the next one starts empty, and not with
// records of long ago.
absl::Status KeptRecords::Load(
    absl::FunctionRef<absl::Status(std::string_view key, Fields fields)> take) {
  struct stat facts {};
  if (::fstat(fd_, &facts) != 0)
    return weft::StatusFromErrno(errno, weft::StrCat("look at ", path_));
  std::string text(static_cast<size_t>(facts.st_size), '\0');
  size_t read = 0;
  while (read < text.size()) {
    const ssize_t count =
        ::pread(fd_, text.data() + read, text.size() - read, static_cast<off_t>(read));
    if (count <= 0) return weft::StatusFromErrno(errno, weft::StrCat("read ", path_));
    read += static_cast<size_t>(count);
  }
  if (text.empty()) return absl::OkStatus();
  const auto broken = [&] {
    return absl::DataLossError(weft::StrCat(path_, " has no records of kv_server's: remove it"));
  };
  if (text.compare(0, kMagic.size(), kMagic) != 0) return broken();
  Reader reader(std::string_view(text).substr(kMagic.size()));
  uint64_t records = 0;
  if (!reader.Number(&records)) return broken();
  std::vector<FieldView> fields;
  for (; records > 0; --records) {
    std::string_view key;
    uint64_t count = 0;
    if (!reader.Text(&key) || !reader.Number(&count)) return broken();
    fields.clear();
    for (; count > 0; --count) {
      FieldView field;
      if (!reader.Text(&field.name) || !reader.Text(&field.value)) return broken();
      fields.push_back(field);
    }
    WEFT_RETURN_IF_ERROR(take(key, fields));
  }
  if (!reader.at_end()) return broken();
  if (::ftruncate(fd_, 0) != 0) return weft::StatusFromErrno(errno, weft::StrCat("empty ", path_));
  return absl::OkStatus();
}

absl::Status KeptRecords::Save(const Store& store) {
  std::string text(kMagic);
  Append(uint64_t{store.size()}, &text);
  store.Scan("", [&text](std::string_view key, const Record& record) {
    Append(key, &text);
    uint64_t fields = 0;
    for ([[maybe_unused]] const FieldView& field : record) ++fields;
    Append(fields, &text);
    for (const FieldView& field : record) {
      Append(field.name, &text);
      Append(field.value, &text);
    }
    return true;
  });
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count =
        ::pwrite(fd_, text.data() + written, text.size() - written, static_cast<off_t>(written));
    if (count < 0 && errno != EINTR) {
      const absl::Status status = weft::StatusFromErrno(errno, weft::StrCat("write ", path_));
      // Half of them is none of them.
      [[maybe_unused]] const int emptied = ::ftruncate(fd_, 0);
      return status;
    }
    if (count > 0) written += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

void WaitingKv::Open() { End(State::kOpen); }
void WaitingKv::Refuse() { End(State::kRefusing); }

void WaitingKv::End(State state) {
  state_ = state;
  for (weft::Function<void()>& start : std::exchange(waiting_, {})) start();
}

template <class Call>
void WaitingKv::Start(Call call, void (Kv::Service::*start)(Call)) {
  if (state_ == State::kOpen) return (service_.*start)(std::move(call));
  if (state_ == State::kRefusing) {
    return call.Finish(absl::UnavailableError("this server ends without the records"));
  }
  waiting_.emplace_back(
      [this, start, call = std::move(call)]() mutable { Start(std::move(call), start); });
}

void WaitingKv::StartPut(weft::UnaryCall<PutRequest, PutReply> call) {
  Start(std::move(call), &Kv::Service::StartPut);
}
void WaitingKv::StartGet(weft::UnaryCall<GetRequest, GetReply> call) {
  Start(std::move(call), &Kv::Service::StartGet);
}
void WaitingKv::StartDelete(weft::UnaryCall<DeleteRequest, DeleteReply> call) {
  Start(std::move(call), &Kv::Service::StartDelete);
}
void WaitingKv::StartOpenIndex(weft::UnaryCall<OpenIndexRequest, OpenIndexReply> call) {
  Start(std::move(call), &Kv::Service::StartOpenIndex);
}
void WaitingKv::StartStats(weft::UnaryCall<StatsRequest, StatsReply> call) {
  Start(std::move(call), &Kv::Service::StartStats);
}
void WaitingKv::StartScan(weft::UnaryCall<ScanRequest, ScanReply> call) {
  Start(std::move(call), &Kv::Service::StartScan);
}

}  // namespace kv
