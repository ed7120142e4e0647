// Records in the memory of a server that keeps no rule, as a client reads and writes them, for a
// fuzzer.
//
// The first bytes choose what a record is, and the handle: the server's own, or that with bytes
// changed, or bytes alone. Then come events: operations of the client in all their forms, also from
// another thread and out of a callback; words that the server stores into its memory, whatever is
// under way; handles that it revokes; faults of the network; time. Each operation ends once, a
// record with a checksum that was read is a whole one, and what lies beyond the array is not asked
// for.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/testing/fuzz_input.h"
#include "rpc/client/channel.h"
#include "rpc/layout/record.h"
#include "rpc/memory/remote_records.h"
#include "rpc/server/exported_memory.h"
#include "rpc/server/server.h"
#include "transport/exports.h"
#include "transport/sim/sim_network.h"
#include "weft/memory.pb.h"

namespace weft::test {
namespace {

constexpr int kMostEvents = 60;
constexpr size_t kMostOperations = 64;
constexpr size_t kRecordBytes = 64;
constexpr uint64_t kRecords = 400;  // more than a batch takes, and than there are slots
constexpr uint64_t kLayout = 4711;
constexpr uint64_t kTimeoutUs = 300'000;

SimOptions OptionsOf(uint8_t how) {
  SimOptions options;
  options.done_at_once_percent = (how & 1) != 0 ? 50 : 0;
  options.late_placing_ns = (how & 2) != 0 ? 50'000 : 0;
  return options;
}

class World {
 public:
  explicit World(FuzzInput input)
      : how_(input.U8()), input_(input), network_(/*seed=*/1, OptionsOf(input_.U8())) {
    shape_ = {"Record", kLayout, kRecordBytes, /*checked=*/(how_ & 1) != 0};
    server_ = Server::Create(network_.Node("server"), {}).value();
    WEFT_CHECK(server_->Listen("sim:server").ok());
    Export();
    channel_ = Channel::Open(network_.Node("client"), "sim:server", {}).value();
  }

  void Run() {
    Open();
    for (int i = 0; i < kMostEvents && input_.more(); ++i) Event();
    is_ending_ = true;
    Heal();
    Close();
    exported_.reset();
    channel_.reset();
    server_.reset();
  }

 private:
  struct Operation {
    std::vector<uint64_t> indices;
    std::vector<std::byte> bytes;
    int ends = 0;
  };

  // --- the server -------------------------------------------------------------------------------

  void Export() {
    exported_.reset();
    ExportOptions options;
    options.rights = (how_ & 2) != 0 ? kMayRead : kAllRights;
    options.layout = (how_ & 4) != 0 ? kLayout + 1 : kLayout;
    options.layout_name = "Record";
    // (Of no whole number of records, now and then.)
    const size_t more = (how_ & 24) == 24 ? 8 : 0;
    exported_ =
        server_->Export(MutableByteSpan(owned_).first(kRecords * kRecordBytes + more), options)
            .value();
  }
  // A record as it should be, or any words of one.
  void Store(uint8_t how) {
    std::byte* const record = owned_.data() + input_.U16() % kRecords * kRecordBytes;
    if (how >= 64) {
      const uint64_t word = input_.Number();
      std::memcpy(record + input_.Below(8) * sizeof(word), &word, sizeof(word));
      return;
    }
    std::memset(record, how, kRecordBytes);
    const uint64_t sequence = 2 * uint64_t{input_.U8()};
    std::memcpy(record, &sequence, sizeof(sequence));
    const uint64_t checksum = RecordChecksum(record, kRecordBytes);
    std::memcpy(record + kRecordBytes - sizeof(checksum), &checksum, sizeof(checksum));
  }
  void Revoke(uint8_t how) {
    exported_->Revoke(/*grace_us=*/how < 128 ? 0 : how * 100, /*wait_us=*/0);
    if (how % 16 < 8) Export();
  }
  void Disturb(uint8_t how) {
    switch (how / 16 % 6) {
      case 0:
        return network_.Cut("client", "server");
      case 1:
        return network_.Cut("server", "client");
      case 2:
        return network_.SlowDown("server", uint64_t{how} * kNsPerMs);
      case 3:
        if (how >= 224) network_.StopAnswering("server");
        return;
      default:
        return Heal();
    }
  }
  void Heal() {
    network_.Heal("client", "server");
    network_.SlowDown("server", 0);
  }

  // --- the client -------------------------------------------------------------------------------

  RemoteRegion Handle() {
    RemoteRegion region = exported_->handle();
    const uint8_t odd = (how_ & 32) != 0 ? input_.U8() : 0;
    std::string& bytes = *region.mutable_capability();
    if (odd % 8 == 1) bytes = input_.Text(input_.U8());
    if (odd % 8 == 2) bytes.resize(input_.U8());
    if (odd % 8 > 2) bytes[input_.U8() % bytes.size()] ^= static_cast<char>(input_.U8());
    return region;
  }
  void Open() {
    RemoteMemoryOptions options;
    options.timeout_us = kTimeoutUs;
    options.max_waiting = (how_ & 64) != 0 ? 2 : 1024;
    options.resolve_at_once = (how_ & 128) == 0;
    auto opened = RemoteRecords::Open(*channel_, Handle(), shape_, options);
    if (!opened.ok()) return;
    owned_records_ = *std::move(opened);
    records_ = owned_records_.get();
    size_ = records_->size();
  }
  // All that was begun has ended then.
  void Close() {
    owned_records_.reset();  // callbacks may still start operations
    records_ = nullptr;
    WEFT_CHECK(std::all_of(operations_.begin(), operations_.end(),
                           [](const auto& one) { return one->ends == 1; }));
    operations_.clear();
  }
  void Event() {
    const uint8_t event = input_.U8();
    switch (event % 16) {
      case 0:
      case 1:
        return Store(input_.U8());
      case 2:
        return network_.RunFor(uint64_t{input_.U8()} * 2 * kNsPerUs);
      case 3:
        return network_.RunFor(uint64_t{input_.U8()} * 10 * kNsPerMs);
      case 4:
        return Revoke(input_.U8());
      case 5:
        return Disturb(input_.U8());
      case 6:
        Close();
        return Open();
      case 7:
        return ReadNow();
      case 8:
        return WriteNow();
      case 9:
        if (records_ == nullptr) return;
        static_cast<void>(records_->stats());
        network_.CheckInvariants();
        return;
      case 10:  // from a thread that may not drive the engine: the operation is handed over
        return std::thread([&] { Start(/*again=*/false); }).join();
      default:
        return Start(/*again=*/event >= 192);
    }
  }

  // Mostly one that there is.
  uint64_t Index() { return input_.Below(8) < 7 ? input_.U16() % kRecords : input_.Number(); }
  std::unique_ptr<Operation> NewOperation(bool is_write) {
    auto operation = std::make_unique<Operation>();
    const uint8_t count = is_write ? 1 : input_.U8();
    for (int i = 0; i < (count < 224 ? count % 4 : 2 * count); ++i) {
      // Many are neighbours, or the same: there are not so many bytes.
      operation->indices.push_back(i < 4 ? Index()
                                         : operation->indices[0] + static_cast<uint64_t>(i) % 9);
    }
    operation->bytes.resize(std::max<size_t>(operation->indices.size(), 1) * kRecordBytes);
    return operation;
  }
  void OnEnd(const Operation& operation, bool is_read, const absl::Status& status) {
    const bool is_there = std::all_of(operation.indices.begin(), operation.indices.end(),
                                      [&](uint64_t index) { return index < size_; });
    if (!is_there) WEFT_CHECK(!status.ok());
    if (!is_read || !status.ok() || !shape_.checked) return;
    for (size_t i = 0; i < operation.indices.size(); ++i) {
      WEFT_CHECK(IsWholeRecord(operation.bytes.data() + i * kRecordBytes, kRecordBytes));
    }
  }
  void ReadNow() {
    if (records_ == nullptr) return;
    const auto operation = NewOperation(/*is_write=*/false);
    OnEnd(*operation, /*is_read=*/true,
          records_->Read(operation->indices, operation->bytes.data()));
  }
  void WriteNow() {
    if (records_ == nullptr) return;
    const auto operation = NewOperation(/*is_write=*/true);
    OnEnd(*operation, /*is_read=*/false,
          records_->Write(operation->indices[0], operation->bytes.data()));
  }
  // `again`: its end starts another one, perhaps while all of it is destroyed.
  void Start(bool again) {
    if (records_ == nullptr || operations_.size() == kMostOperations) return;
    const uint32_t kind = input_.Below(4);
    Operation* const operation =
        operations_.emplace_back(NewOperation(/*is_write=*/kind == 0)).get();
    const bool is_read = kind != 0;
    const auto done = [this, operation, is_read, again](const absl::Status& status) {
      WEFT_CHECK(++operation->ends == 1);
      OnEnd(*operation, is_read, status);
      if (again && !is_ending_) Start(/*again=*/false);
    };
    if (!is_read) return records_->Write(operation->indices[0], operation->bytes.data(), done);
    if (operation->indices.size() == 1) {
      return records_->ReadOne(operation->indices[0], operation->bytes.data(), done);
    }
    records_->Read(operation->indices, operation->bytes.data(), done);
  }

  const uint8_t how_;
  FuzzInput input_;
  SimNetwork network_;
  RecordShape shape_;
  std::vector<std::byte> owned_ = std::vector<std::byte>((kRecords + 1) * kRecordBytes);
  std::unique_ptr<Server> server_;
  std::unique_ptr<ExportedMemory> exported_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<RemoteRecords> owned_records_;
  RemoteRecords* records_ = nullptr;
  std::vector<std::unique_ptr<Operation>> operations_;
  uint64_t size_ = 0;  // of the records
  bool is_ending_ = false;
};

}  // namespace
}  // namespace weft::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::test::World(weft::FuzzInput(data, size)).Run();
  return 0;
}
