#include "embed/rocksdb/remote_cache.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/clock.h"
#include "core/crc32c.h"
#include "core/status.h"
#include "core/strings.h"
#include "weft/coroutine.h"
#include "weft/engine.h"

namespace weft::embed {
namespace {

// What the server lends at least, and what one process can ask for.
constexpr uint64_t kMinBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxBytes = uint64_t{1} << 40;

// The longest key that RocksDB makes has 16 bytes; of others some more.
constexpr size_t kMaxKeyBytes = 256;

struct Header {
  uint64_t sequence = 0;
  uint32_t key_bytes = 0;
  uint32_t value_bytes = 0;
  uint32_t crc32c = 0;
  uint32_t zero = 0;
};
static_assert(sizeof(Header) == 24);

// Of an entry, up to a multiple of 8.
size_t EntryBytes(uint32_t key_bytes, uint32_t value_bytes) {
  return (sizeof(Header) + key_bytes + value_bytes + 7) & ~size_t{7};
}

// `entry`: header, key and value.
uint32_t ChecksumOf(Header header, ByteSpan key_and_value) {
  header.crc32c = 0;
  return Crc32c(key_and_value,
                Crc32c({reinterpret_cast<const std::byte*>(&header), sizeof(header)}));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteCache>> RemoteCache::Open(const RemoteCacheOptions& options) {
  if (options.bytes < kMinBytes || options.bytes > kMaxBytes) {
    return absl::InvalidArgumentError(StrCat("a cache of ", options.bytes, " bytes; ", kMinBytes,
                                             " to ", kMaxBytes, " can be asked for"));
  }
  ChannelOptions channel_options = options.channel;
  channel_options.connect_at_once = false;
  WEFT_ASSIGN_OR_RETURN(auto channel, Channel::Open(options.address, channel_options));
  return std::unique_ptr<RemoteCache>(new RemoteCache(options, std::move(channel)));
}

RemoteCache::RemoteCache(const RemoteCacheOptions& options, std::unique_ptr<Channel> channel)
    : options_(options), channel_(std::move(channel)), stub_(*channel_) {
  thread_ = std::thread([this] { Work(); });
}

RemoteCache::~RemoteCache() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// --- look-ups ------------------------------------------------------------------------------------

std::shared_ptr<RemoteCache::Memory> RemoteCache::memory() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return memory_;
}

std::optional<RemoteCache::Place> RemoteCache::Find(std::string_view key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = index_.find(std::string(key));
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

void RemoteCache::Fetch(absl::Span<Lookup*> lookups) {
  const std::shared_ptr<Memory> now = memory();
  while (!lookups.empty()) {
    const absl::Span<Lookup*> batch = lookups.subspan(0, kMaxBatchTransfers);
    if (now != nullptr) FetchBatch(now, batch);
    lookups.remove_prefix(batch.size());
    for (const Lookup* lookup : batch) {
      (lookup->value_.data() != nullptr ? hits_ : misses_).fetch_add(1, std::memory_order_relaxed);
    }
  }
}

void RemoteCache::FetchBatch(const std::shared_ptr<Memory>& memory, absl::Span<Lookup*> lookups) {
  size_t total = 0;
  for (const Lookup* lookup : lookups) {
    total += EntryBytes(lookup->place_.key_bytes, lookup->place_.value_bytes);
  }
  absl::StatusOr<std::unique_ptr<Buffer>> allocated = channel_->AllocateBuffer(total);
  if (!allocated.ok()) return;
  const std::shared_ptr<Buffer> buffer = *std::move(allocated);
  std::array<RemotePiece, kMaxBatchTransfers> pieces;
  size_t count = 0;
  size_t place = 0;
  for (const Lookup* lookup : lookups) {
    const size_t bytes = EntryBytes(lookup->place_.key_bytes, lookup->place_.value_bytes);
    if (lookup->place_.memory == memory->number) {
      pieces[count++] = {lookup->place_.offset, buffer->slice(place, bytes)};
    }
    place += bytes;
  }
  if (count == 0) return;
  const absl::Status status = count == 1
                                  ? memory->remote->Read(pieces[0].offset, pieces[0].local)
                                  : memory->remote->ReadBatch(absl::MakeSpan(pieces.data(), count));
  if (!status.ok()) return Lose(memory);
  batches_.fetch_add(1, std::memory_order_relaxed);
  place = 0;
  for (Lookup* lookup : lookups) {
    const Place& wanted = lookup->place_;
    const ByteSpan entry =
        ByteSpan(buffer->bytes()).subspan(place, EntryBytes(wanted.key_bytes, wanted.value_bytes));
    place += entry.size();
    if (wanted.memory != memory->number) continue;
    Header header;
    std::memcpy(&header, entry.data(), sizeof(header));
    const ByteSpan body =
        entry.subspan(sizeof(header), size_t{wanted.key_bytes} + wanted.value_bytes);
    const ByteSpan key = body.first(wanted.key_bytes);
    if (header.sequence != wanted.sequence || header.key_bytes != wanted.key_bytes ||
        header.value_bytes != wanted.value_bytes || key.size() != lookup->key_.size() ||
        std::memcmp(key.data(), lookup->key_.data(), key.size()) != 0 ||
        header.crc32c != ChecksumOf(header, body)) {
      continue;
    }
    lookup->value_ = body.subspan(wanted.key_bytes);
    lookup->buffer_ = buffer;
  }
}

// --- insertions ----------------------------------------------------------------------------------

bool RemoteCache::Put(std::string_view key, size_t bytes,
                      absl::FunctionRef<bool(MutableByteSpan)> fill) {
  if (bytes == 0 || bytes > kMaxValueBytes || key.empty() || key.size() > kMaxKeyBytes)
    return false;
  Queued queued;
  queued.key = std::string(key);
  queued.place.key_bytes = static_cast<uint32_t>(key.size());
  queued.place.value_bytes = static_cast<uint32_t>(bytes);
  queued.bytes = EntryBytes(queued.place.key_bytes, queued.place.value_bytes);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    index_.erase(queued.key);
    if (memory_ == nullptr || queued_bytes_ + queued.bytes > kMaxQueuedBytes ||
        queued.bytes > LongestBatch()) {
      pending_.erase(queued.key);
      ++dropped_;
      return false;
    }
    queued_bytes_ += queued.bytes;
    queued.place.sequence = ++last_sequence_;
    pending_[queued.key] = queued.place.sequence;
  }
  absl::StatusOr<std::unique_ptr<Buffer>> buffer = channel_->AllocateBuffer(queued.bytes);
  bool filled = buffer.ok();
  if (filled) {
    const MutableByteSpan entry = (*buffer)->bytes();
    const MutableByteSpan body = entry.subspan(sizeof(Header), key.size() + bytes);
    std::memcpy(body.data(), key.data(), key.size());
    filled = fill(body.subspan(key.size()));
    Header header = {queued.place.sequence, queued.place.key_bytes, queued.place.value_bytes, 0, 0};
    header.crc32c = ChecksumOf(header, body);
    std::memcpy(entry.data(), &header, sizeof(header));
    queued.buffer = *std::move(buffer);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!filled) {
    queued_bytes_ -= queued.bytes;
    if (pending_[queued.key] == queued.place.sequence) pending_.erase(queued.key);
    ++dropped_;
    return false;
  }
  queue_.push_back(std::move(queued));
  changed_.notify_all();
  return true;
}

void RemoteCache::Erase(std::string_view key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  index_.erase(std::string(key));
  pending_.erase(std::string(key));
}

void RemoteCache::EraseIndexOf(const Entry& entry) {
  const auto found = index_.find(entry.key);
  if (found != index_.end() && found->second.sequence == entry.sequence) index_.erase(found);
}

// So one batch never overwrites parts of itself, nor of the one before.
size_t RemoteCache::LongestBatch() const {
  return memory_ == nullptr ? kMaxQueuedBytes : memory_->remote->size() / 4;
}

// From `head_` on, or from the memory's begin where it ends before.
uint64_t RemoteCache::MakePlace(size_t bytes) {
  const auto drop_oldest = [this] {
    EraseIndexOf(ring_.front());
    ring_.pop_front();
  };
  if (head_ + bytes > memory_->remote->size()) {
    // What is older than the entries at the begin lies behind the head.
    while (!ring_.empty() && ring_.front().begin >= head_) drop_oldest();
    head_ = 0;
  }
  const uint64_t begin = head_;
  head_ += bytes;
  while (!ring_.empty() && ring_.front().begin < head_ && ring_.front().end > begin) drop_oldest();
  return begin;
}

void RemoteCache::Write(std::vector<Queued> batch) {
  std::shared_ptr<Memory> memory;
  std::array<RemotePiece, kMaxBatchTransfers> pieces;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    memory = memory_;
    for (size_t i = 0; memory != nullptr && i < batch.size(); ++i) {
      // Queued for an earlier memory, which was larger.
      if (batch[i].bytes > LongestBatch()) memory = nullptr;
    }
    for (size_t i = 0; memory != nullptr && i < batch.size(); ++i) {
      Queued& queued = batch[i];
      const uint64_t offset = MakePlace(queued.bytes);
      ring_.push_back({offset, offset + queued.bytes, queued.place.sequence, queued.key});
      queued.place.memory = memory->number;
      queued.place.offset = offset;
      pieces[i] = {offset, queued.buffer->slice(0, queued.bytes)};
    }
  }
  const absl::Status status =
      memory == nullptr
          ? absl::UnavailableError("no memory")
          : memory->remote->WriteAcknowledged(absl::MakeSpan(pieces.data(), batch.size()));
  if (memory != nullptr && !status.ok()) Lose(memory);
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool is_there = status.ok() && memory_ == memory;
  for (const Queued& queued : batch) {
    queued_bytes_ -= queued.bytes;
    const auto pending = pending_.find(queued.key);
    const bool is_last = pending != pending_.end() && pending->second == queued.place.sequence;
    if (is_last) pending_.erase(pending);
    if (is_there && is_last) {
      index_[queued.key] = queued.place;
      ++inserted_;
    } else {
      ++dropped_;
    }
  }
}

// --- the memory ----------------------------------------------------------------------------------

void RemoteCache::Forget() {
  index_.clear();
  ring_.clear();
  head_ = 0;
  memory_ = nullptr;
}

void RemoteCache::Lose(const std::shared_ptr<Memory>& memory) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (memory_ != memory) return;
    Forget();
  }
  changed_.notify_all();
}

void RemoteCache::Ask() {
  stream_.reset();
  wire::BorrowRequest request;
  request.set_bytes(options_.bytes);
  wire::BorrowReply reply;
  auto stream = stub_.Borrow(request, {});
  Alarm deadline(channel_->engine());
  deadline.Set(kAskAgainUs, [&stream] { stream.Cancel(); });
  const bool got = stream.Read(&reply);
  if (!deadline.Cancel() || !got) return;
  RemoteMemoryOptions options;
  options.timeout_us = kTimeoutUs;
  auto remote = RemoteMemory::Open(*channel_, reply.memory(), options);
  // No more than was asked for: the index grows with what is in the memory.
  if (!remote.ok() || (*remote)->size() < kMinBytes || (*remote)->size() > options_.bytes) return;
  stream_.emplace(std::move(stream));
  const std::lock_guard<std::mutex> lock(mutex_);
  memory_ = std::make_shared<Memory>();
  memory_->number = ++memories_;
  memory_->remote = *std::move(remote);
}

void RemoteCache::Work() {
  uint64_t asked_ns = 0;
  Clock& clock = channel_->engine().clock();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    if (memory_ == nullptr && (asked_ns == 0 || clock.NowNs() >= asked_ns + 1000 * kAskAgainUs)) {
      lock.unlock();
      Ask();
      asked_ns = clock.NowNs();
      lock.lock();
      has_asked_ = true;
      changed_.notify_all();
      continue;
    }
    if (queue_.empty()) {
      changed_.notify_all();
      changed_.wait_for(lock, std::chrono::microseconds(kAskAgainUs));
      continue;
    }
    std::vector<Queued> batch;
    size_t bytes = queue_.front().bytes;
    while (!queue_.empty() && batch.size() < kMaxBatchTransfers &&
           (batch.empty() || bytes <= LongestBatch())) {
      batch.push_back(std::move(queue_.front()));
      queue_.pop_front();
      if (!queue_.empty()) bytes += queue_.front().bytes;
    }
    is_working_ = true;
    lock.unlock();
    Write(std::move(batch));
    lock.lock();
    is_working_ = false;
  }
  Forget();
  lock.unlock();
  stream_.reset();
}

void RemoteCache::WaitIdle() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return has_asked_ && queue_.empty() && !is_working_; });
}

RemoteCache::Stats RemoteCache::stats() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Stats stats;
  stats.hits = hits_.load(std::memory_order_relaxed);
  stats.misses = misses_.load(std::memory_order_relaxed);
  stats.batches = batches_.load(std::memory_order_relaxed);
  stats.inserted = inserted_;
  stats.dropped = dropped_;
  stats.entries = index_.size();
  stats.memories = memories_;
  return stats;
}

}  // namespace weft::embed
