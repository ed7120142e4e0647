#include "embed/rocksdb/lent_files.h"

#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "embed/rocksdb/served_folder.h"

namespace weft::embed {
namespace {

absl::Status FileChanged() { return absl::DataLossError("the file changed while it was read"); }

}  // namespace

absl::StatusOr<LentFiles::Loan> LentFiles::Lend(uint64_t identity, const Descriptor& file,
                                                uint64_t bytes, uint64_t client) {
  const uint64_t taken = bytes > max_bytes_ ? bytes : ExportedMemory::TakenBy(bytes);
  if (bytes == 0 || taken > max_bytes_of_one_) {
    return absl::InvalidArgumentError(StrCat("a file of ", bytes, " bytes, for which ", taken,
                                             " bytes of memory are needed; 1 to ",
                                             max_bytes_of_one_, " bytes can be lent"));
  }
  Entries gone;  // is revoked, which waits, when the mutex is free
  std::unique_lock<std::mutex> lock(mutex_);
  TakeForgotten(&gone);
  const auto found = entries_.find(identity);
  if (found != entries_.end()) {
    Entry* const entry = found->second.get();
    entry->loans_.fetch_add(1);
    Loan loan(entry);
    changed_.wait(lock, [entry] { return entry->is_ready_ || !entry->failure_.ok(); });
    WEFT_RETURN_IF_ERROR(entry->failure_);
    entry->last_use_ = ++uses_;
    return loan;
  }
  WEFT_RETURN_IF_ERROR(MakeRoom(taken, client, &gone));
  Entry* const entry =
      entries_.emplace(identity, std::make_unique<Entry>(bytes, client, taken)).first->second.get();
  memory_.Take(client, taken);
  files_.Take(client, 1);
  entry->loans_.store(1);
  Loan loan(entry);
  lock.unlock();
  gone.clear();
  absl::Status loaded = Load(*entry, file);
  lock.lock();
  const auto mine = entries_.find(identity);
  const bool is_there = mine != entries_.end() && mine->second.get() == entry;
  if (!is_there && loaded.ok()) loaded = FileChanged();
  if (!loaded.ok() && is_there) {
    forgotten_.push_back(std::move(mine->second));
    entries_.erase(mine);
  }
  entry->failure_ = loaded;
  entry->is_ready_ = loaded.ok();
  entry->last_use_ = ++uses_;
  changed_.notify_all();
  WEFT_RETURN_IF_ERROR(loaded);
  return loan;
}

std::map<uint64_t, std::unique_ptr<LentFiles::Entry>>::iterator LentFiles::OldestWithoutLoans(
    std::optional<uint64_t> of_client) {
  auto oldest = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    const Entry& entry = *it->second;
    if (!entry.is_ready_ || entry.loans_.load(std::memory_order_acquire) > 0) continue;
    if (of_client.has_value() && entry.client_ != *of_client) continue;
    if (oldest == entries_.end() || entry.last_use_ < oldest->second->last_use_) oldest = it;
  }
  return oldest;
}

absl::Status LentFiles::MakeRoom(uint64_t taken, uint64_t client, Entries* gone) {
  while (true) {
    // A large file may be more than what is left of an eighth, whatever its client's share is.
    const bool has_all_of_one = memory_.Of(client) + taken > max_bytes_of_one_;
    if (!has_all_of_one && memory_.HasRoom(client, taken, max_bytes_) &&
        files_.HasRoom(client, 1, kMaxEntries)) {
      return absl::OkStatus();
    }
    const auto oldest =
        OldestWithoutLoans(has_all_of_one ? std::optional<uint64_t>(client) : std::nullopt);
    if (oldest == entries_.end()) {
      return absl::ResourceExhaustedError(
          StrCat(memory_.all(), " of ", max_bytes_, " bytes for files in memory are in use, by ",
                 files_.all(), " of ", kMaxEntries, " files; ", memory_.Of(client), " bytes and ",
                 files_.Of(client), " files are this client's, which can have no ", taken,
                 " bytes more: read by calls, or try again later"));
    }
    GiveBack(*oldest->second);
    gone->push_back(std::move(oldest->second));
    entries_.erase(oldest);
  }
}

void LentFiles::TakeForgotten(Entries* gone) {
  for (size_t i = 0; i < forgotten_.size();) {
    if (forgotten_[i]->loans_.load(std::memory_order_acquire) > 0) {
      ++i;
      continue;
    }
    GiveBack(*forgotten_[i]);
    gone->push_back(std::move(forgotten_[i]));
    forgotten_.erase(forgotten_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void LentFiles::GiveBack(Entry& entry) {
  if (entry.taken_ == 0) return;
  memory_.Give(entry.client_, std::exchange(entry.taken_, 0));
  files_.Give(entry.client_, 1);
}

absl::Status LentFiles::Load(Entry& entry, const Descriptor& file) {
  WEFT_ASSIGN_OR_RETURN(entry.memory_,
                        ExportedMemory::Allocate(engine_, entry.bytes_, {.rights = kMayRead}));
  const MutableByteSpan into = entry.memory_->bytes().first(entry.bytes_);
  WEFT_ASSIGN_OR_RETURN(const size_t got, ServedFolder::Read(file, 0, into));
  WEFT_ASSIGN_OR_RETURN(const ServedFolder::Facts facts, ServedFolder::FactsOf(file));
  if (got != entry.bytes_ || facts.bytes != entry.bytes_) return FileChanged();
  WEFT_ASSIGN_OR_RETURN(entry.region_, entry.memory_->Derive({.length = entry.bytes_}));
  return absl::OkStatus();
}

void LentFiles::Forget(uint64_t identity) {
  Entries gone;
  std::unique_lock<std::mutex> lock(mutex_);
  TakeForgotten(&gone);
  const auto found = entries_.find(identity);
  if (found == entries_.end()) return;
  Entry* const entry = found->second.get();
  entry->loans_.fetch_add(1);
  const Loan loan(entry);
  forgotten_.push_back(std::move(found->second));
  entries_.erase(found);
  changed_.wait(lock, [entry] { return entry->is_ready_ || !entry->failure_.ok(); });
  lock.unlock();
  // Revokes it. Where a client has to answer for it (ofi_tcp, some cards), one that does not ends
  // its connection, and holds up no other one's files. Nobody else uses it any more: the memory
  // goes now, and not with loans, which may last.
  entry->memory_.reset();
  lock.lock();
  GiveBack(*entry);
}

uint64_t LentFiles::bytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return memory_.all();
}

}  // namespace weft::embed
