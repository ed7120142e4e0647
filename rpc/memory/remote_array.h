// RemoteArray<T> is an array of records in another process's memory, under the schema of a .proto:
//
//   message Account { option (weft.fixed_layout) = true; sfixed64 balance = 1; ... }
//
//   owner     std::vector<AccountLayout> accounts(1000);
//             auto exported =
//                 server->Export(BytesOf(accounts), ExportAs<AccountLayout>(kAllRights));
//             (*exported)->handle(reply->mutable_accounts());
//   holder    auto accounts = RemoteArray<AccountLayout>::Open(*channel, reply.accounts());
//             AccountLayout account;
//             absl::Status status = (*accounts)->Read(7, &account);
//             (*accounts)->FetchAdd(7, &AccountLayout::balance, 100);
//
// No code of the owner runs for a Read or a Write. Two sides that do not mean the same layout find
// out in Open(), by its hash. Records with a sequence word are never returned torn: a read that
// meets a writer is repeated (record.h); they are changed by their owner alone. Records without one
// may be read while a peer or the owner writes them, and then hold a mixture.
//
// Threads, Lifetime, Errors: as RemoteMemory (remote_memory.h) and RemoteRecords; `T*`, `const T&`
//   and the span of indices stay untouched until an operation with a callback has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/bytes.h"
#include "core/function.h"
#include "rpc/layout/fixed_layout.h"
#include "rpc/layout/record.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/memory/remote_records.h"
#include "transport/exports.h"

namespace weft {

// How an owner says what its memory holds.
template <FixedLayout T>
ExportOptions ExportAs(Rights rights) {
  ExportOptions options;
  options.rights = rights;
  options.layout = T::kLayoutHash;
  options.layout_name = std::string(T::kLayoutName);
  return options;
}

// The bytes of an array of records: of a std::vector, a std::array, a span.
template <class Records>
MutableByteSpan BytesOf(Records& records) {
  static_assert(FixedLayout<std::remove_reference_t<decltype(*records.data())>>);
  return std::as_writable_bytes(std::span(records.data(), records.size()));
}

template <FixedLayout T>
class RemoteArray {
 public:
  // `options.layout` is T's. INVALID_ARGUMENT, besides: the memory is not a number of whole
  // records.
  static absl::StatusOr<std::unique_ptr<RemoteArray>> Open(
      Channel& channel, const RemoteRegion& region, const RemoteMemoryOptions& options = {}) {
    absl::StatusOr<std::unique_ptr<RemoteRecords>> records = RemoteRecords::Open(
        channel, region, {T::kLayoutName, T::kLayoutHash, sizeof(T), T::kChecked}, options);
    if (!records.ok()) return records.status();
    return std::unique_ptr<RemoteArray>(new RemoteArray(*std::move(records)));
  }

  uint64_t size() const { return records_->size(); }  // records
  RecordStats stats() { return records_->stats(); }
  // The same memory as bytes: for offsets within records, buffers of one's own, batches.
  RemoteMemory& memory() { return records_->memory(); }

  // --- blocking ---------------------------------------------------------------------------------

  absl::Status Read(uint64_t i, T* out) { return ReadMany(absl::Span<const uint64_t>(&i, 1), out); }
  // out[k] is record indices[k]; up to kMaxBatchTransfers records in one go, in any order.
  absl::Status ReadMany(absl::Span<const uint64_t> indices, T* out) {
    return records_->Read(indices, reinterpret_cast<std::byte*>(out));
  }
  absl::Status Write(uint64_t i, const T& value) {
    static_assert(!T::kChecked, "records with a sequence word are changed by their owner alone");
    return records_->Write(i, reinterpret_cast<const std::byte*>(&value));
  }
  // What was there before. For members of type uint64_t and int64_t.
  template <class Field>
  absl::StatusOr<Field> FetchAdd(uint64_t i, Field T::*field, std::type_identity_t<Field> operand) {
    return As<Field>(memory().FetchAdd(OffsetOf(i, field), static_cast<uint64_t>(operand)));
  }
  template <class Field>
  absl::StatusOr<Field> CompareSwap(uint64_t i, Field T::*field,
                                    std::type_identity_t<Field> expected,
                                    std::type_identity_t<Field> desired) {
    return As<Field>(memory().CompareSwap(OffsetOf(i, field), static_cast<uint64_t>(expected),
                                          static_cast<uint64_t>(desired)));
  }

  // --- with a callback --------------------------------------------------------------------------

  // `i` is copied; the spans' indices stay until `done`.
  void Read(uint64_t i, T* out, Function<void(absl::Status)> done) {
    records_->ReadOne(i, reinterpret_cast<std::byte*>(out), std::move(done));
  }
  void ReadMany(absl::Span<const uint64_t> indices, T* out, Function<void(absl::Status)> done) {
    records_->Read(indices, reinterpret_cast<std::byte*>(out), std::move(done));
  }
  void Write(uint64_t i, const T& value, Function<void(absl::Status)> done) {
    static_assert(!T::kChecked, "records with a sequence word are changed by their owner alone");
    records_->Write(i, reinterpret_cast<const std::byte*>(&value), std::move(done));
  }
  template <class Field>
  void FetchAdd(uint64_t i, Field T::*field, std::type_identity_t<Field> operand,
                Function<void(absl::StatusOr<uint64_t>)> done) {
    memory().FetchAdd(OffsetOf(i, field), static_cast<uint64_t>(operand), std::move(done));
  }
  template <class Field>
  void CompareSwap(uint64_t i, Field T::*field, std::type_identity_t<Field> expected,
                   std::type_identity_t<Field> desired,
                   Function<void(absl::StatusOr<uint64_t>)> done) {
    memory().CompareSwap(OffsetOf(i, field), static_cast<uint64_t>(expected),
                         static_cast<uint64_t>(desired), std::move(done));
  }

 private:
  explicit RemoteArray(std::unique_ptr<RemoteRecords> records) : records_(std::move(records)) {}

  // An index beyond the end gives an offset beyond the end: RemoteMemory refuses it.
  template <class Field>
  uint64_t OffsetOf(uint64_t i, Field T::*field) const {
    static_assert(std::is_integral_v<Field> && sizeof(Field) == 8,
                  "atomics work on members of type uint64_t and int64_t");
    static_assert(!T::kChecked, "records with a sequence word are changed by their owner alone");
    static constexpr T kOrigin{};
    const auto offset = reinterpret_cast<const std::byte*>(&(kOrigin.*field)) -
                        reinterpret_cast<const std::byte*>(&kOrigin);
    return i < size() ? i * sizeof(T) + static_cast<uint64_t>(offset) : ~uint64_t{7};
  }

  template <class Field>
  static absl::StatusOr<Field> As(const absl::StatusOr<uint64_t>& before) {
    if (!before.ok()) return before.status();
    return static_cast<Field>(*before);
  }

  const std::unique_ptr<RemoteRecords> records_;
};

}  // namespace weft
