#include "weft/memory.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "c/channel.h"
#include "c/server.h"
#include "c/status.h"
#include "core/strings.h"
#include "weft/c_memory.h"
#include "weft/memory.pb.h"
#include "weft/remote_memory.h"

struct weft_buffer {
  weft::c::Use of_channel;  // goes last
  std::unique_ptr<weft::Buffer> buffer;
};

struct weft_export {
  weft::c::Use of_server;     // goes last
  const weft_engine& engine;  // the server's
  std::unique_ptr<weft::ExportedMemory> memory;
};

struct weft_remote {
  weft::c::Use of_channel;    // goes last
  const weft_engine& engine;  // the channel's
  std::unique_ptr<weft::RemoteMemory> memory;
};

namespace weft::c {
namespace {

// RemoteMemory's, of one batch (weft/c_memory.h).
constexpr size_t kMostPieces = 64;

absl::Status CheckRights(std::string_view function, int rights) {
  if (rights > 0 && rights <= kAllRights && AreRights(static_cast<Rights>(rights))) {
    return absl::OkStatus();
  }
  return Invalid(function, StrCat("rights are ", rights,
                                  "; they are a sum of 1 (read), 2 (write) and, with both others, "
                                  "4 (atomics)"));
}

void WriteHandle(const RemoteRegion& region, void* handle) {
  std::memcpy(handle, region.capability().data(), WEFT_HANDLE_BYTES);
}

// A program's pieces, as those of RemoteMemory. It has no more than kMostPieces.
class Pieces {
 public:
  absl::Status Read(std::string_view function, const weft_piece* pieces, size_t count) {
    if (pieces == nullptr || count == 0 || count > kMostPieces) {
      return Invalid(function, StrCat("there are ", pieces == nullptr ? 0 : count,
                                      " pieces; there have to be 1 to ", kMostPieces));
    }
    for (size_t i = 0; i < count; ++i) {
      const weft_piece& from = pieces[i];
      if (from.buffer == nullptr) return Invalid(function, StrCat("piece ", i, " has no buffer"));
      pieces_[i] = {from.offset, from.buffer->buffer->slice(from.buffer_offset, from.size)};
    }
    count_ = count;
    return absl::OkStatus();
  }

  absl::Span<const RemotePiece> all() const { return {pieces_.data(), count_}; }

 private:
  std::array<RemotePiece, kMostPieces> pieces_;
  size_t count_ = 0;
};

weft_status* TakeValue(absl::StatusOr<uint64_t> result, uint64_t* before) {
  if (!result.ok()) return ToC(std::move(result).status());
  if (before != nullptr) *before = *result;
  return nullptr;
}

// A callback that gives a value.
auto ValueDone(weft_value_done done, void* arg) {
  return [done, arg](absl::StatusOr<uint64_t> result) {
    uint64_t before = 0;
    weft_status* const status = TakeValue(std::move(result), &before);
    done(arg, status, before);
  };
}

auto Done(weft_done done, void* arg) {
  return [done, arg](absl::Status status) { CallDone(done, arg, std::move(status)); };
}

weft_status* TakeExport(weft_server* server, absl::StatusOr<std::unique_ptr<ExportedMemory>> made,
                        weft_export** memory) {
  if (!made.ok()) return ToC(std::move(made).status());
  *memory = new weft_export{Use(server->uses), *server->engine, *std::move(made)};
  return nullptr;
}

}  // namespace
}  // namespace weft::c

using weft::c::Pieces;
using weft::c::ToC;

// --- buffer -------------------------------------------------------------------------------------

weft_status* weft_buffer_new(weft_channel* channel, size_t size, weft_buffer** buffer) {
  WEFT_C_REQUIRE(buffer);
  *buffer = nullptr;
  WEFT_C_REQUIRE(channel);
  absl::StatusOr<std::unique_ptr<weft::Buffer>> made = channel->channel->AllocateBuffer(size);
  WEFT_C_RETURN_IF_ERROR(made.status());
  *buffer = new weft_buffer{weft::c::Use(channel->uses), *std::move(made)};
  return nullptr;
}

void* weft_buffer_data(weft_buffer* buffer) {
  return buffer == nullptr ? nullptr : buffer->buffer->bytes().data();
}

size_t weft_buffer_size(const weft_buffer* buffer) {
  return buffer == nullptr ? 0 : buffer->buffer->bytes().size();
}

void weft_buffer_free(weft_buffer* buffer) { delete buffer; }

// --- export -------------------------------------------------------------------------------------

weft_status* weft_export_new(weft_server* server, size_t size, int rights, weft_export** memory) {
  WEFT_C_REQUIRE(memory);
  *memory = nullptr;
  WEFT_C_REQUIRE(server);
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckRights(__func__, rights));
  weft::ExportOptions options;
  options.rights = static_cast<weft::Rights>(rights);
  return weft::c::TakeExport(server, server->server->AllocateExport(size, options), memory);
}

weft_status* weft_export_existing(weft_server* server, void* data, size_t size, int rights,
                                  weft_export** memory) {
  WEFT_C_REQUIRE(memory);
  *memory = nullptr;
  WEFT_C_REQUIRE(server);
  WEFT_C_REQUIRE(data);
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckRights(__func__, rights));
  weft::ExportOptions options;
  options.rights = static_cast<weft::Rights>(rights);
  const weft::MutableByteSpan bytes(static_cast<std::byte*>(data), size);
  return weft::c::TakeExport(server, server->server->Export(bytes, options), memory);
}

void* weft_export_data(weft_export* memory) {
  return memory == nullptr ? nullptr : memory->memory->bytes().data();
}

size_t weft_export_size(const weft_export* memory) {
  return memory == nullptr ? 0 : memory->memory->bytes().size();
}

weft_status* weft_export_handle(const weft_export* memory, void* handle) {
  WEFT_C_REQUIRE(memory);
  WEFT_C_REQUIRE(handle);
  weft::c::WriteHandle(memory->memory->handle(), handle);
  return nullptr;
}

weft_status* weft_export_derive(const weft_export* memory, uint64_t offset, uint64_t length,
                                int rights, uint64_t lifetime_us, void* handle) {
  WEFT_C_REQUIRE(memory);
  WEFT_C_REQUIRE(handle);
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckRights(__func__, rights));
  weft::DeriveOptions options;
  options.offset = offset;
  options.length = length;
  options.rights = static_cast<weft::Rights>(rights);
  options.lifetime_us = lifetime_us;
  const absl::StatusOr<weft::RemoteRegion> derived = memory->memory->Derive(options);
  if (!derived.ok()) return ToC(absl::Status(derived.status()));
  weft::c::WriteHandle(*derived, handle);
  return nullptr;
}

int weft_export_revoke(weft_export* memory, uint64_t grace_us, uint64_t wait_us) {
  if (memory == nullptr) return 0;
  constexpr uint64_t kMostGraceUs = 60'000'000;
  return memory->memory->Revoke(std::min(grace_us, kMostGraceUs), wait_us) ==
         weft::ExportedMemory::Revoked::kReclaimed;
}

void weft_export_free(weft_export* memory) {
  if (memory != nullptr && weft::c::MayWait(__func__, memory->engine)) delete memory;
}

// --- remote memory ------------------------------------------------------------------------------

weft_status* weft_remote_open(weft_channel* channel, weft_bytes handle, weft_remote** remote) {
  WEFT_C_REQUIRE(remote);
  *remote = nullptr;
  WEFT_C_REQUIRE(channel);
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckBytes(__func__, "handle", handle));
  if (handle.size != WEFT_HANDLE_BYTES) {
    return ToC(weft::c::Invalid(
        __func__,
        weft::StrCat("handle has ", handle.size, " bytes; one has ", int{WEFT_HANDLE_BYTES})));
  }
  weft::RemoteRegion region;
  region.set_capability(handle.data, handle.size);
  absl::StatusOr<std::unique_ptr<weft::RemoteMemory>> opened =
      weft::RemoteMemory::Open(*channel->channel, region);
  WEFT_C_RETURN_IF_ERROR(opened.status());
  *remote = new weft_remote{weft::c::Use(channel->uses), *channel->engine, *std::move(opened)};
  return nullptr;
}

uint64_t weft_remote_size(const weft_remote* remote) {
  return remote == nullptr ? 0 : remote->memory->size();
}

int weft_remote_rights(const weft_remote* remote) {
  return remote == nullptr ? 0 : remote->memory->rights();
}

void weft_remote_free(weft_remote* remote) {
  if (remote != nullptr && weft::c::MayWait(__func__, remote->engine)) delete remote;
}

weft_status* weft_remote_read(weft_remote* remote, const weft_piece* pieces, size_t count) {
  WEFT_C_REQUIRE(remote);
  Pieces read;
  WEFT_C_RETURN_IF_ERROR(read.Read(__func__, pieces, count));
  return ToC(remote->memory->ReadBatch(read.all()));
}

weft_status* weft_remote_write(weft_remote* remote, const weft_piece* pieces, size_t count) {
  WEFT_C_REQUIRE(remote);
  Pieces read;
  WEFT_C_RETURN_IF_ERROR(read.Read(__func__, pieces, count));
  return ToC(remote->memory->WriteBatch(read.all()));
}

weft_status* weft_remote_fetch_add(weft_remote* remote, uint64_t offset, uint64_t operand,
                                   uint64_t* before) {
  WEFT_C_REQUIRE(remote);
  return weft::c::TakeValue(remote->memory->FetchAdd(offset, operand), before);
}

weft_status* weft_remote_compare_swap(weft_remote* remote, uint64_t offset, uint64_t expected,
                                      uint64_t desired, uint64_t* before) {
  WEFT_C_REQUIRE(remote);
  return weft::c::TakeValue(remote->memory->CompareSwap(offset, expected, desired), before);
}

weft_status* weft_remote_read_start(weft_remote* remote, const weft_piece* pieces, size_t count,
                                    weft_done done, void* arg) {
  WEFT_C_REQUIRE(remote);
  WEFT_C_REQUIRE(done);
  Pieces read;
  WEFT_C_RETURN_IF_ERROR(read.Read(__func__, pieces, count));
  remote->memory->ReadBatch(read.all(), weft::c::Done(done, arg));
  return nullptr;
}

weft_status* weft_remote_write_start(weft_remote* remote, const weft_piece* pieces, size_t count,
                                     weft_done done, void* arg) {
  WEFT_C_REQUIRE(remote);
  WEFT_C_REQUIRE(done);
  Pieces read;
  WEFT_C_RETURN_IF_ERROR(read.Read(__func__, pieces, count));
  remote->memory->WriteBatch(read.all(), weft::c::Done(done, arg));
  return nullptr;
}

weft_status* weft_remote_fetch_add_start(weft_remote* remote, uint64_t offset, uint64_t operand,
                                         weft_value_done done, void* arg) {
  WEFT_C_REQUIRE(remote);
  WEFT_C_REQUIRE(done);
  remote->memory->FetchAdd(offset, operand, weft::c::ValueDone(done, arg));
  return nullptr;
}

weft_status* weft_remote_compare_swap_start(weft_remote* remote, uint64_t offset, uint64_t expected,
                                            uint64_t desired, weft_value_done done, void* arg) {
  WEFT_C_REQUIRE(remote);
  WEFT_C_REQUIRE(done);
  remote->memory->CompareSwap(offset, expected, desired, weft::c::ValueDone(done, arg));
  return nullptr;
}
