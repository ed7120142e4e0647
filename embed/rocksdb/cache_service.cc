#include "embed/rocksdb/cache_service.h"

#include <algorithm>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/strings.h"

namespace weft::embed {

// One thread: memory is mapped, and given back, when clients come and go.
CacheService::CacheService(Engine& engine, uint64_t max_bytes)
    : engine_(engine), max_bytes_(max_bytes), mappers_(std::make_unique<DiskPool>(1)) {}

CacheService::~CacheService() {
  RunOnEngine([this] { stopping_ = true; });
  mappers_.reset();
  RunOnEngine([] {});  // behind what the thread has posted
  loans_.clear();      // the server is gone, and with it all streams
}

// From another thread, and so never for ever: the engine makes room.
void CacheService::PostOnEngine(Function<void()> task) {
  while (!engine_.Post(std::move(task))) std::this_thread::yield();
}

void CacheService::RunOnEngine(Function<void()> task) {
  std::promise<void> ran;
  PostOnEngine([&task, &ran] {
    task();
    ran.set_value();
  });
  ran.get_future().wait();
}

void CacheService::StartBorrow(const wire::BorrowRequest& request,
                               ServerWriter<wire::BorrowReply> stream) {
  if (request.bytes() < kMinLentBytes) {
    return stream.Finish(absl::InvalidArgumentError(
        StrCat(request.bytes(), " bytes; at least ", kMinLentBytes, " are lent")));
  }
  const uint64_t bytes = std::min(request.bytes(), max_bytes_ - lent_bytes_.load());
  if (bytes < kMinLentBytes || loans_.size() >= kMaxLoans) {
    return stream.Finish(
        absl::ResourceExhaustedError(StrCat(lent_bytes_.load(), " of ", max_bytes_,
                                            " bytes are lent, to ", loans_.size(), " clients")));
  }
  lent_bytes_.fetch_add(bytes);
  const uint64_t number = ++last_number_;
  Loan& loan = loans_[number];
  loan.bytes = bytes;
  loan.stream = std::move(stream);
  mappers_->Run(lane_, [this, number, bytes] {
    auto memory = ExportedMemory::Allocate(engine_, bytes, {.rights = kMayRead | kMayWrite});
    PostOnEngine([this, number, memory = std::move(memory)]() mutable {
      OnMapped(number, std::move(memory));
    });
  });
  // May run here and now.
  loan.stream->context().OnCancel(
      [this, number] { End(number, absl::CancelledError("its client is gone")); });
}

void CacheService::OnMapped(uint64_t number,
                            absl::StatusOr<std::unique_ptr<ExportedMemory>> memory) {
  const auto found = loans_.find(number);
  if (!memory.ok()) return End(number, memory.status());
  found->second.memory = *std::move(memory);
  if (!found->second.stream.has_value()) return End(number, absl::OkStatus());
  const auto told = std::make_shared<wire::BorrowReply>();
  found->second.memory->handle(told->mutable_memory());
  found->second.stream->Write(*told, [told](bool) {});  // it stays until it has been written
}

// A loan whose memory is being mapped is gone later.
void CacheService::End(uint64_t number, absl::Status why) {
  const auto found = loans_.find(number);
  if (found == loans_.end()) return;
  Loan& loan = found->second;
  const bool failed = !absl::IsCancelled(why) && !why.ok();
  if (loan.stream.has_value()) {
    ServerWriter<wire::BorrowReply> stream = *std::move(loan.stream);
    loan.stream.reset();
    stream.Finish(std::move(why));
  }
  if (stopping_ || (loan.memory == nullptr && !failed)) return;
  mappers_->Run(lane_, [this, bytes = loan.bytes, memory = std::move(loan.memory)]() mutable {
    memory.reset();  // waits until nobody can touch it
    lent_bytes_.fetch_sub(bytes);
  });
  loans_.erase(found);
}

void CacheService::EndLoans() {
  PostOnEngine([this] {
    std::vector<uint64_t> numbers;
    for (const auto& [number, loan] : loans_) numbers.push_back(number);
    for (const uint64_t number : numbers) End(number, absl::CancelledError("the server ends"));
  });
}

}  // namespace weft::embed
