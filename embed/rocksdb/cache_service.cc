#include "embed/rocksdb/cache_service.h"

#include <algorithm>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/strings.h"

namespace weft::embed {
namespace {

// Above kMinLentBytes memory comes in huge pages, of 2 MiB.
constexpr uint64_t kPageBytes = uint64_t{2} << 20;

// How many of the bytes that are wanted have room in what is left, with the pages that they take.
uint64_t Fitting(uint64_t wanted, uint64_t left) {
  if (wanted <= left && ExportedMemory::TakenBy(wanted) <= left) return wanted;
  if (left >= kPageBytes) return left - left % kPageBytes;
  return std::min(left, CacheService::kMinLentBytes);
}

}  // namespace

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

uint64_t CacheService::lent_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return lent_.all();
}

absl::StatusOr<uint64_t> CacheService::Take(uint64_t client, uint64_t wanted) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t all = lent_.all();
  const uint64_t of_client = lent_.Of(client);
  const uint64_t most_of_one = std::max(AllButReserve(max_bytes_), kMinLentBytes);
  const uint64_t share = std::min(lent_.ShareOf(max_bytes_), most_of_one);
  // To whoever comes; and what is kept for others, to who has less than its share.
  uint64_t left = std::max(all, AllButReserve(max_bytes_)) - all;
  if (of_client < share) left = std::max(left, std::min(max_bytes_ - all, share - of_client));
  const uint64_t bytes = Fitting(wanted, left);
  if (bytes < kMinLentBytes || !loans_of_.HasRoom(client, 1, max_loans_)) {
    return absl::ResourceExhaustedError(StrCat(all, " of ", max_bytes_, " bytes are lent, in ",
                                               loans_of_.all(), " of ", max_loans_, " loans; ",
                                               of_client, " bytes, in ", loans_of_.Of(client),
                                               " loans, to this client, which can have no ", wanted,
                                               " more: borrow less, or try again later"));
  }
  lent_.Take(client, ExportedMemory::TakenBy(bytes));
  loans_of_.Take(client, 1);
  return bytes;
}

void CacheService::Give(uint64_t client, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  lent_.Give(client, ExportedMemory::TakenBy(bytes));
  loans_of_.Give(client, 1);
}

void CacheService::StartBorrow(const wire::BorrowRequest& request,
                               ServerWriter<wire::BorrowReply> stream) {
  if (request.bytes() < kMinLentBytes) {
    return stream.Finish(absl::InvalidArgumentError(
        StrCat(request.bytes(), " bytes; at least ", kMinLentBytes, " are lent")));
  }
  const uint64_t client = stream.context().path().client;
  const absl::StatusOr<uint64_t> taken = Take(client, request.bytes());
  if (!taken.ok()) return stream.Finish(taken.status());
  const uint64_t bytes = *taken;
  const uint64_t number = ++last_number_;
  Loan& loan = loans_[number];
  loan.client = client;
  loan.bytes = bytes;
  loan.stream = std::move(stream);
  mappers_->Run(client, [this, number, bytes] {
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
  mappers_->Run(loan.client, [this, client = loan.client, bytes = loan.bytes,
                              memory = std::move(loan.memory)]() mutable {
    memory.reset();  // waits until nobody can touch it
    Give(client, bytes);
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
