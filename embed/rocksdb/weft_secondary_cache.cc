#include "embed/rocksdb/weft_secondary_cache.h"

#include <charconv>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/strings.h"
#include "embed/rocksdb/weft_uri.h"
#include "rocksdb/utilities/object_registry.h"

namespace weft::embed {
namespace {

std::string_view ViewOf(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

class ResultHandle final : public rocksdb::SecondaryCacheResultHandle {
 public:
  ResultHandle(RemoteCache& cache, const RemoteCache::Place& place, const rocksdb::Slice& key,
               const rocksdb::Cache::CreateCallback& create)
      : cache_(cache), create_(create), lookup_(std::in_place, place, ViewOf(key)) {}

  bool IsReady() override { return !lookup_.has_value(); }
  void Wait() override {
    if (IsReady()) return;
    RemoteCache::Lookup* one = &*lookup_;
    cache_.Fetch(absl::MakeSpan(&one, 1));
    OnFetched();
  }
  void* Value() override { return value_; }
  size_t Size() override { return charge_; }

  RemoteCache::Lookup* lookup() { return &*lookup_; }
  void OnFetched() {
    const ByteSpan found = lookup_->value();
    if (found.data() != nullptr && !create_(found.data(), found.size(), &value_, &charge_).ok()) {
      value_ = nullptr;
      charge_ = 0;
    }
    lookup_.reset();
  }

 private:
  RemoteCache& cache_;
  const rocksdb::Cache::CreateCallback create_;
  std::optional<RemoteCache::Lookup> lookup_;  // none: it is ready
  void* value_ = nullptr;
  size_t charge_ = 0;
};

class WeftSecondaryCache final : public rocksdb::SecondaryCache {
 public:
  explicit WeftSecondaryCache(std::unique_ptr<RemoteCache> cache) : cache_(std::move(cache)) {}

  static const char* kClassName() { return "WeftSecondaryCache"; }
  const char* Name() const override { return kClassName(); }

  rocksdb::Status Insert(const rocksdb::Slice& key, void* value,
                         const rocksdb::Cache::CacheItemHelper* helper) override {
    const size_t bytes = helper->size_cb(value);
    cache_->Put(ViewOf(key), bytes, [&](MutableByteSpan into) {
      return helper->saveto_cb(value, 0, bytes, into.data()).ok();
    });
    return rocksdb::Status::OK();  // it is a cache: what was not kept is a miss
  }

  std::unique_ptr<rocksdb::SecondaryCacheResultHandle> Lookup(
      const rocksdb::Slice& key, const rocksdb::Cache::CreateCallback& create, bool wait,
      bool advise_erase, bool& is_in_sec_cache) override {
    is_in_sec_cache = false;
    const std::optional<RemoteCache::Place> place = cache_->Find(ViewOf(key));
    if (!place.has_value()) return nullptr;
    auto handle = std::make_unique<ResultHandle>(*cache_, *place, key, create);
    if (advise_erase) {
      cache_->Erase(ViewOf(key));
    } else {
      is_in_sec_cache = true;
    }
    if (!wait) return handle;
    handle->Wait();
    if (handle->Value() == nullptr) return nullptr;
    return handle;
  }

  [[nodiscard]] bool SupportForceErase() const override { return true; }
  void Erase(const rocksdb::Slice& key) override { cache_->Erase(ViewOf(key)); }

  void WaitAll(std::vector<rocksdb::SecondaryCacheResultHandle*> handles) override {
    std::vector<ResultHandle*> waiting;
    std::vector<RemoteCache::Lookup*> lookups;
    for (rocksdb::SecondaryCacheResultHandle* const handle : handles) {
      if (handle->IsReady()) continue;
      waiting.push_back(static_cast<ResultHandle*>(handle));
      lookups.push_back(waiting.back()->lookup());
    }
    cache_->Fetch(absl::MakeSpan(lookups));
    for (ResultHandle* const handle : waiting) handle->OnFetched();
  }

 private:
  const std::unique_ptr<RemoteCache> cache_;
};

absl::StatusOr<uint64_t> BytesOf(const std::string& mib) {
  uint64_t count = 64;
  const auto [end, error] = std::from_chars(mib.data(), mib.data() + mib.size(), count);
  if (mib.empty()) return count << 20;
  if (error != std::errc() || end != mib.data() + mib.size() || count >> 40 != 0) {
    return absl::InvalidArgumentError(StrCat("\"mib:", mib, "\" in a URI of Weft: no number"));
  }
  return count << 20;
}

}  // namespace

absl::StatusOr<std::unique_ptr<rocksdb::SecondaryCache>> OpenWeftSecondaryCache(
    const std::string& uri) {
  WEFT_ASSIGN_OR_RETURN(WeftUri where, ParseWeftUri("weft-cache", uri, {"mib"}));
  RemoteCacheOptions options;
  options.address = where.address;
  options.channel = std::move(where.channel);
  WEFT_ASSIGN_OR_RETURN(options.bytes, BytesOf(where.own["mib"]));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<RemoteCache> cache, RemoteCache::Open(options));
  return MakeWeftSecondaryCache(std::move(cache));
}

std::unique_ptr<rocksdb::SecondaryCache> MakeWeftSecondaryCache(
    std::unique_ptr<RemoteCache> cache) {
  return std::make_unique<WeftSecondaryCache>(std::move(cache));
}

void RegisterWeftSecondaryCache() {
  using Library = rocksdb::ObjectLibrary;
  Library::Default()->AddFactory<rocksdb::SecondaryCache>(
      Library::PatternEntry("weft-cache", false).AddSeparator("://"),
      [](const std::string& uri, std::unique_ptr<rocksdb::SecondaryCache>* guard,
         std::string* error) -> rocksdb::SecondaryCache* {
        absl::StatusOr<std::unique_ptr<rocksdb::SecondaryCache>> cache =
            OpenWeftSecondaryCache(uri);
        if (!cache.ok()) {
          *error = StrCat("weft: ", ToStd(cache.status().message()));
          return nullptr;
        }
        *guard = *std::move(cache);
        return guard->get();
      });
}

}  // namespace weft::embed
