#include "transport/shm/domain_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/log.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft {
namespace {

constexpr uint64_t kMagic = 0x324d4f4454464557;  // "WEFTDOM2"
constexpr std::string_view kName = "weft-domain-";

std::string NameOf(const FilePlace& table) {
  return StrCat(kName, absl::StrFormat("%016x", table.identity), "-", table.descriptor);
}

// What peers may only read.
absl::StatusOr<MappedMemory> MapTable() {
  MappedMemoryOptions options;
  options.huge_pages = MappedMemoryOptions::HugePages::kNever;
  options.source = MappedMemoryOptions::Source::kMemfd;
  options.peers_may_write = false;
  WEFT_ASSIGN_OR_RETURN(MappedMemory table, MappedMemory::Map(RegionTable::kBytes, options));
  // A child of fork() has no regions of this domain.
  madvise(table.bytes().data(), table.bytes().size(), MADV_DONTFORK);
  return table;
}

}  // namespace

FilePlace TableOf(int descriptor) {
  char link[96];  // "/memfd:", the name, " (deleted)"
  const ssize_t length = readlink(StrCat("/proc/self/fd/", descriptor).c_str(), link, sizeof(link));
  const std::string_view text(link, length > 0 ? static_cast<size_t>(length) : 0);
  const size_t name = text.find(kName);
  if (name == text.npos) return {};
  const char* const end = text.data() + text.size();
  FilePlace table;
  const auto identity =
      std::from_chars(text.data() + name + kName.size(), end, table.identity, /*base=*/16);
  if (identity.ec != std::errc() || identity.ptr == end || *identity.ptr != '-') return {};
  const auto number = std::from_chars(identity.ptr + 1, end, table.descriptor);
  return number.ec == std::errc() ? table : FilePlace();
}

absl::StatusOr<std::unique_ptr<DomainMemory>> DomainMemory::Create() {
  WEFT_ASSIGN_OR_RETURN(MappedMemory table, MapTable());
  WEFT_ASSIGN_OR_RETURN(
      SealedMemory memory,
      SealedMemory::Create(NameOf(FindFile(table.bytes())).c_str(), sizeof(SharedDomainMemory)));
  return std::unique_ptr<DomainMemory>(new DomainMemory(std::move(table), std::move(memory)));
}

DomainMemory::DomainMemory(MappedMemory table, SealedMemory memory)
    : table_(std::move(table)),
      memory_(std::move(memory)),
      ready_flags_(&shared()->ready_flags),
      regions_(table_.bytes().data(), &shared()->pins) {}

int DomainMemory::Show() {
  shared()->magic.store(kMagic, std::memory_order_relaxed);
  return memory_.descriptor();
}

PeerDomain::PeerDomain(const PeerDomainKey& key, const FilePlace& table, SealedMemory memory,
                       const CopyWays& ways, OldMappings* old)
    : key_(key),
      memory_(std::move(memory)),
      table_file_(key.process_id, old, MemoryFile::Peers::kOnlyRead),
      regions_status_(absl::UnimplementedError(
          "the file of the peer's table of regions cannot be opened: see the container's rights")) {
  if (const std::byte* const found = table_file_.Find(table, RegionTable::kBytes);
      found != nullptr) {
    absl::StatusOr<std::unique_ptr<PeerRegions>> regions =
        PeerRegions::Open(found, &shared()->pins, key.process_id, ways, old);
    regions_status_ = regions.status();
    if (regions.ok()) regions_ = *std::move(regions);
  }
  if (regions_ == nullptr) {
    WEFT_LOG(kInfo, "shm: the peer carries out all one-sided operations: ",
             ToStd(regions_status_.message()));
  }
}

absl::StatusOr<std::shared_ptr<PeerDomain>> PeerDomains::Open(int descriptor, int32_t process_id,
                                                              uint64_t process_start) {
  WEFT_ASSIGN_OR_RETURN(const FileIdentity file, IdentityOf(descriptor));
  const PeerDomainKey key{file, process_id, process_start};
  std::erase_if(known_, [](const std::weak_ptr<PeerDomain>& known) { return known.expired(); });
  for (const std::weak_ptr<PeerDomain>& known : known_) {
    std::shared_ptr<PeerDomain> peer = known.lock();
    if (peer->key() == key) return peer;
  }
  WEFT_ASSIGN_OR_RETURN(SealedMemory memory,
                        SealedMemory::Open(descriptor, sizeof(SharedDomainMemory)));
  // Others can write over the magic at any time, but not over the name.
  const FilePlace table = TableOf(descriptor);
  if (table.identity == 0 &&
      reinterpret_cast<const SharedDomainMemory*>(memory.data())->magic.load() != kMagic) {
    return absl::InvalidArgumentError("a peer's memory for its domain has another layout");
  }
  auto peer = std::make_shared<PeerDomain>(key, table, std::move(memory), ways_, &old_mappings_);
  known_.push_back(peer);
  return peer;
}

}  // namespace weft
