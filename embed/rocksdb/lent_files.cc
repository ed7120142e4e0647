#include "embed/rocksdb/lent_files.h"

#include <algorithm>
#include <tuple>
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
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    const auto found = entries_.find(identity);
    if (found != entries_.end()) {
      const std::shared_ptr<Entry> entry = found->second;
      if (entry->is_leaving_) {
        return absl::ResourceExhaustedError(
            "the file's copy in memory is being taken back: read by calls, or try again later");
      }
      WaitUntilLoaded(lock, *entry);
      WEFT_RETURN_IF_ERROR(entry->failure_);
      entry->last_use_ = ++uses_;
      return Loan(entry);
    }
    WEFT_ASSIGN_OR_RETURN(const Entries idle, ToEvict(taken, client));
    if (idle.empty()) break;
    Revoke(lock, idle);  // meanwhile others may have come
  }
  const auto entry = std::make_shared<Entry>(identity, bytes, client, taken);
  entries_.emplace(identity, entry);
  Count(*entry);
  lock.unlock();
  absl::Status loaded = Load(*entry, file);
  if (!loaded.ok()) entry->memory_.reset();
  lock.lock();
  if (loaded.ok() && entry->is_leaving_) loaded = FileChanged();
  if (!loaded.ok() && !entry->is_leaving_) {
    entries_.erase(identity);
    Uncount(*entry);
  }
  entry->failure_ = loaded;
  entry->is_ready_ = loaded.ok();
  entry->last_use_ = ++uses_;
  changed_.notify_all();
  WEFT_RETURN_IF_ERROR(loaded);
  return Loan(entry);
}

// Those that have to leave first, none of them if there is room; or the refusal, and none leaves.
absl::StatusOr<LentFiles::Entries> LentFiles::ToEvict(uint64_t taken, uint64_t client) {
  // A large file may be more than what is left of an eighth, whatever its client's share is.
  const auto has_all_of_one = [&] { return memory_.Of(client) + taken > max_bytes_of_one_; };
  const auto has_room = [&] {
    return !has_all_of_one() && memory_.HasRoom(client, taken, max_bytes_) &&
           files_.HasRoom(client, 1, max_entries_);
  };
  if (has_room()) return Entries();
  // Where it has all of one, others' copies make no room for it.
  Entries idle = WithoutLoans();
  const bool own_first = has_all_of_one();
  std::sort(idle.begin(), idle.end(), [&](const auto& one, const auto& other) {
    return std::tuple(own_first && one->client_ != client, one->last_use_) <
           std::tuple(own_first && other->client_ != client, other->last_use_);
  });
  // As if they were gone, one by one; they count until they are.
  size_t count = 0;
  while (!has_room() && count < idle.size()) Uncount(*idle[count++]);
  const bool suffices = has_room();
  idle.resize(count);
  for (const auto& entry : idle) Count(*entry);
  if (suffices) return idle;
  return absl::ResourceExhaustedError(
      StrCat(memory_.all(), " of ", max_bytes_, " bytes for files in memory are in use, by ",
             files_.all(), " of ", max_entries_, " files; ", memory_.Of(client), " bytes and ",
             files_.Of(client), " files are this client's, which can have no ", taken,
             " bytes more: read by calls, or try again later"));
}

LentFiles::Entries LentFiles::WithoutLoans() {
  Entries idle;
  for (const auto& [identity, entry] : entries_) {
    // The first loan of an entry begins under mutex_: where there is none now, none begins.
    if (entry->is_ready_ && !entry->is_leaving_ && entry.use_count() == 1) idle.push_back(entry);
  }
  return idle;
}

void LentFiles::Count(const Entry& entry) {
  memory_.Take(entry.client_, entry.taken_);
  files_.Take(entry.client_, 1);
}

void LentFiles::Uncount(const Entry& entry) {
  memory_.Give(entry.client_, entry.taken_);
  files_.Give(entry.client_, 1);
}

void LentFiles::WaitUntilLoaded(std::unique_lock<std::mutex>& lock, const Entry& entry) {
  changed_.wait(lock, [&entry] { return entry.is_ready_ || !entry.failure_.ok(); });
}

// Waits, with the mutex free, until nobody can read them: then their memory is given back, though
// loans of them may last. Where a client has to answer for it (ofi_tcp, some cards), one that does
// not ends its connection, and holds up no other one's files. REQUIRES: they are loaded.
void LentFiles::Revoke(std::unique_lock<std::mutex>& lock, const Entries& leaving) {
  for (const auto& entry : leaving) entry->is_leaving_ = true;
  lock.unlock();
  for (const auto& entry : leaving) entry->memory_.reset();
  lock.lock();
  for (const auto& entry : leaving) {
    entries_.erase(entry->identity_);
    Uncount(*entry);
  }
  changed_.notify_all();
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
  std::unique_lock<std::mutex> lock(mutex_);
  for (auto found = entries_.find(identity); found != entries_.end();
       found = entries_.find(identity)) {
    const std::shared_ptr<Entry> entry = found->second;
    if (entry->is_leaving_) {  // somebody else revokes it
      changed_.wait(lock);
      continue;
    }
    entry->is_leaving_ = true;  // so that it is not lent once it is loaded
    WaitUntilLoaded(lock, *entry);
    Revoke(lock, {entry});
  }
}

uint64_t LentFiles::bytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return memory_.all();
}

}  // namespace weft::embed
