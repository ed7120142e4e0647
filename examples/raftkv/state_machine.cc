#include "examples/raftkv/state_machine.h"

#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/write_batch_with_index.h>

#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "core/status.h"
#include "core/strings.h"
#include "examples/kv/kv_service.h"
#include "examples/kv/record.h"
#include "weft/log.h"

namespace raftkv {
namespace {

using ::weft::StrCat;

constexpr std::string_view kHeaderKey = "m";
constexpr std::string_view kLeadKey = "l";
constexpr char kRecordPrefix = 'r';
constexpr char kSessionPrefix = 's';

// Of a snapshot.
constexpr std::string_view kMagic = "weft raftkv 1\n";
constexpr size_t kLengthsBytes = 2 * sizeof(uint32_t);
// Written at a time by Restore().
constexpr size_t kRestoreBatchBytes = size_t{1} << 20;

// The memory of one state: two memtables and a cache.
constexpr size_t kMemtableBytes = size_t{32} << 20;
constexpr size_t kCacheBytes = size_t{64} << 20;
constexpr int kOpenFiles = 256;
// Of a database that is being opened: files of 64 MiB and more hold a state, StateOptions bounds it
// at 1 GiB, and RocksDB's 16 threads take longer to come and go than to open so few.
constexpr int kOpeningThreads = 1;

rocksdb::Slice ToSlice(std::string_view bytes) { return {bytes.data(), bytes.size()}; }
std::string_view ToView(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

absl::Status ToStatus(const rocksdb::Status& status, std::string_view what) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = StrCat(what, ": RocksDB says: ", status.ToString());
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(text);
  if (status.IsCorruption()) return absl::DataLossError(text);
  if (status.IsBusy() || status.IsTryAgain()) return absl::UnavailableError(text);
  return absl::InternalError(text);
}

std::string RecordKey(std::string_view key) {
  std::string result(1, kRecordPrefix);
  return result.append(key);
}

std::string SessionKey(uint64_t id) {
  std::string key(1, kSessionPrefix);
  for (int shift = 56; shift >= 0; shift -= 8) key.push_back(static_cast<char>(id >> shift));
  return key;
}

uint64_t SessionOf(std::string_view key) {
  uint64_t id = 0;
  for (const char c : key.substr(1)) id = id << 8 | static_cast<uint8_t>(c);
  return id;
}

void AppendLength(size_t bytes, std::string* to) {
  std::byte encoded[sizeof(uint32_t)];
  weft::StoreLe32(encoded, static_cast<uint32_t>(bytes));
  to->append(reinterpret_cast<const char*>(encoded), sizeof(encoded));
}

size_t LengthAt(std::string_view bytes, size_t at) {
  return weft::LoadLe32(reinterpret_cast<const std::byte*>(bytes.data() + at));
}

// The session that a pair has; false: none, or it cannot be read.
bool DecodeSession(std::string_view key, std::string_view value, SessionRecord* session) {
  return key.size() == 1 + sizeof(uint64_t) && key[0] == kSessionPrefix &&
         session->ParseFromArray(value.data(), static_cast<int>(value.size()));
}

// A state with this pair is not damaged by it: Load() reads the leader, and as sessions all that
// stands behind the records.
bool IsReadable(std::string_view key, std::string_view value) {
  if (key >= std::string_view(&kSessionPrefix, 1)) {
    SessionRecord session;
    return DecodeSession(key, value, &session);
  }
  Lead lead;
  return key != kLeadKey || lead.ParseFromArray(value.data(), static_cast<int>(value.size()));
}

// The pairs of a snapshot, one after the other.
class SnapshotReader {
 public:
  explicit SnapshotReader(std::string_view bytes) : left_(bytes) {
    broken_ = left_.substr(0, kMagic.size()) != kMagic;
    if (!broken_) left_.remove_prefix(kMagic.size());
  }
  bool Next(std::string_view* key, std::string_view* value) {
    if (broken_ || left_.empty()) return false;
    broken_ = true;
    if (left_.size() < kLengthsBytes) return false;
    const size_t key_bytes = LengthAt(left_, 0);
    const size_t value_bytes = LengthAt(left_, sizeof(uint32_t));
    left_.remove_prefix(kLengthsBytes);
    if (key_bytes == 0 || key_bytes > left_.size() || value_bytes > left_.size() - key_bytes) {
      return false;
    }
    *key = left_.substr(0, key_bytes);
    *value = left_.substr(key_bytes, value_bytes);
    left_.remove_prefix(key_bytes + value_bytes);
    broken_ = false;
    return true;
  }
  bool broken() const { return broken_; }

 private:
  std::string_view left_;
  bool broken_ = false;
};

void Set(const absl::Status& status, Outcome* outcome) {
  outcome->set_code(static_cast<int>(status.code()));
  outcome->set_text(std::string(status.message()));
}

uint64_t Charge(std::string_view key, size_t block_bytes) {
  return kv::Store::kRecordOverheadBytes + key.size() + block_bytes;
}

// StateMachine::Check(), and the request's fields. Their number first: a request may have millions
// of empty ones.
absl::Status CheckPut(const kv::PutRequest& request, const kv::StoreLimits& limits,
                      std::vector<kv::FieldView>* fields) {
  WEFT_RETURN_IF_ERROR(limits.CheckKey(request.key()));
  const auto count = static_cast<size_t>(request.fields_size());
  if (count > limits.max_record_fields) return limits.CheckSize({0, count});
  for (const kv::Field& field : request.fields()) fields->push_back({field.name(), field.value()});
  WEFT_RETURN_IF_ERROR(limits.CheckFields(*fields));
  WEFT_RETURN_IF_ERROR(limits.CheckSize(kv::Record().SizeAfter(*fields)));
  if (request.mode() == kv::PutRequest::REPLACE || request.mode() == kv::PutRequest::UPDATE) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      StrCat("mode ", static_cast<int>(request.mode()), " is not known"));
}

kv::Record RecordOf(std::string_view block) {
  std::vector<kv::FieldView> fields;
  kv::BlockReader reader(block);
  for (kv::FieldView field; reader.Next(&field);) fields.push_back(field);
  return kv::Record(fields);
}

template <class Message>
void CopyFields(std::string_view block, Message* to) {
  kv::BlockReader reader(block);
  for (kv::FieldView view; reader.Next(&view);) {
    kv::Field* const field = to->add_fields();
    field->set_name(view.name.data(), view.name.size());
    field->set_value(view.value.data(), view.value.size());
  }
}

}  // namespace

std::string EncodeEntry(const Entry& entry) {
  const std::string encoded = entry.SerializeAsString();
  std::string bytes;
  bytes.reserve(sizeof(uint32_t) + encoded.size() + sizeof(uint64_t));
  AppendLength(encoded.size(), &bytes);
  bytes += encoded;
  bytes.resize((bytes.size() + sizeof(uint64_t) - 1) / sizeof(uint64_t) * sizeof(uint64_t));
  return bytes;
}

bool DecodeEntry(std::string_view bytes, Entry* entry) {
  if (bytes.size() < sizeof(uint32_t)) return false;
  const size_t length = LengthAt(bytes, 0);
  bytes.remove_prefix(sizeof(uint32_t));
  return length <= bytes.size() && entry->ParseFromArray(bytes.data(), static_cast<int>(length));
}

// --- snapshots -----------------------------------------------------------------------------------

StateMachine::Snapshot::Snapshot(rocksdb::DB* db) : db_(*db), snapshot_(db->GetSnapshot()) {}

StateMachine::Snapshot::~Snapshot() { db_.ReleaseSnapshot(snapshot_); }

absl::Status StateMachine::Snapshot::Read(std::vector<std::string>* pieces) const {
  rocksdb::ReadOptions options;
  options.snapshot = snapshot_;
  options.fill_cache = false;
  const std::unique_ptr<rocksdb::Iterator> at(db_.NewIterator(options));
  std::string piece(kMagic);
  for (at->SeekToFirst(); at->Valid(); at->Next()) {
    if (piece.size() >= kPieceBytes) {
      pieces->push_back(std::move(piece));
      piece.clear();
    }
    AppendLength(at->key().size(), &piece);
    AppendLength(at->value().size(), &piece);
    piece.append(ToView(at->key()));
    piece.append(ToView(at->value()));
  }
  pieces->push_back(std::move(piece));
  return ToStatus(at->status(), "read the state for a snapshot");
}

std::unique_ptr<StateMachine::Snapshot> StateMachine::TakeSnapshot() {
  return std::unique_ptr<Snapshot>(new Snapshot(db_.get()));
}

absl::Status StateMachine::Restore(std::string_view bytes) {
  std::string_view key;
  std::string_view value;
  StateHeader header;
  SnapshotReader check(bytes);
  bool has_header = false;
  bool is_readable = true;
  uint64_t records = 0;
  while (check.Next(&key, &value)) {
    is_readable = is_readable && IsReadable(key, value);
    if (key[0] == kRecordPrefix) ++records;
    if (key != kHeaderKey) continue;
    has_header = header.ParseFromArray(value.data(), static_cast<int>(value.size()));
  }
  // A group that has had no command yet has a state without a header.
  if (check.broken() || !is_readable || (!has_header && bytes.size() > kMagic.size()) ||
      records != header.records()) {
    return absl::DataLossError(StrCat("a snapshot of ", bytes.size(), " bytes cannot be read"));
  }
  if (header.applied_index() <= header_.applied_index()) return absl::OkStatus();
  absl::Status replaced = Replace(bytes, header);
  // The bytes are a snapshot: what is damaged is this machine's.
  return absl::IsDataLoss(replaced) ? absl::InternalError(replaced.message()) : replaced;
}

absl::Status StateMachine::Replace(std::string_view bytes, const StateHeader& header) {
  std::string_view key;
  std::string_view value;
  // Before the first entry there is nothing to remove: Load() has looked.
  if (header_.applied_index() > 0) {
    WEFT_RETURN_IF_ERROR(Remove());
    WEFT_RETURN_IF_ERROR(OpenDatabase());
  }
  // The header comes last: a state without it is none.
  rocksdb::WriteOptions write;
  write.disableWAL = true;
  rocksdb::WriteBatch batch;
  for (SnapshotReader reader(bytes); reader.Next(&key, &value);) {
    if (key == kHeaderKey) continue;
    batch.Put(ToSlice(key), ToSlice(value));
    if (batch.GetDataSize() < kRestoreBatchBytes) continue;
    WEFT_RETURN_IF_ERROR(ToStatus(db_->Write(write, &batch), "restore the state"));
    batch.Clear();
  }
  batch.Put(ToSlice(kHeaderKey), header.SerializeAsString());
  WEFT_RETURN_IF_ERROR(ToStatus(db_->Write(write, &batch), "restore the state"));
  return Load();
}

// --- the database --------------------------------------------------------------------------------

StateMachine::StateMachine(std::string folder, const StateOptions& options)
    : folder_(std::move(folder)), options_(options) {}

StateMachine::~StateMachine() = default;

namespace {

rocksdb::Options DatabaseOptions(rocksdb::Env* env) {
  rocksdb::Options options;
  if (env != nullptr) {
    options.env = env;
    // Where files are not the file system's, there may be none for options.
    options.fail_if_options_file_error = false;
    // Few keys there, each written many times: the memtable remembers where each of them stands.
    options.memtable_insert_with_hint_prefix_extractor.reset(rocksdb::NewNoopTransform());
  }
  options.create_if_missing = true;
  options.write_buffer_size = kMemtableBytes;
  options.max_open_files = kOpenFiles;
  options.max_file_opening_threads = kOpeningThreads;
  // Nobody reads them, and they are a thread's work.
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.info_log_level = rocksdb::WARN_LEVEL;
  options.keep_log_file_num = 2;
  // What was not flushed is applied again.
  options.avoid_flush_during_shutdown = true;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(kCacheBytes);
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

}  // namespace

absl::Status StateMachine::OpenDatabase() {
  rocksdb::DB* db = nullptr;
  const rocksdb::Status opened = rocksdb::DB::Open(DatabaseOptions(options_.env), folder_, &db);
  db_.reset(db);
  return ToStatus(opened, StrCat("open the state in ", folder_));
}

absl::Status StateMachine::Remove() {
  db_.reset();
  return ToStatus(rocksdb::DestroyDB(folder_, DatabaseOptions(options_.env)),
                  StrCat("remove the state in ", folder_));
}

absl::StatusOr<std::unique_ptr<StateMachine>> StateMachine::Open(const std::string& folder,
                                                                 const StateOptions& options) {
  std::unique_ptr<StateMachine> state(new StateMachine(folder, options));
  absl::Status status = state->OpenDatabase();
  if (status.ok()) status = state->Load();
  if (status.ok()) return state;
  if (!absl::IsDataLoss(status)) {
    return weft::Annotate(status, "is another member running there, or is the disk full?");
  }
  WEFT_LOG(kWarning, status.message(), "; it is made again from the snapshot and the log");
  WEFT_RETURN_IF_ERROR(state->Remove());
  WEFT_RETURN_IF_ERROR(state->OpenDatabase());
  WEFT_RETURN_IF_ERROR(state->Load());
  return state;
}

absl::Status StateMachine::Load() {
  header_.Clear();
  lead_.Clear();
  sessions_.clear();
  by_use_.clear();
  const auto damaged = [&](std::string_view what) {
    return absl::DataLossError(StrCat("the state in ", folder_, " is damaged: ", what));
  };
  std::string value;
  rocksdb::Status got = db_->Get({}, ToSlice(kHeaderKey), &value);
  if (got.IsNotFound()) {
    // Restore() did not come to its end, or there is nothing.
    const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator({}));
    at->SeekToFirst();
    return at->Valid() ? damaged("it has no header") : ToStatus(at->status(), "read the state");
  }
  WEFT_RETURN_IF_ERROR(ToStatus(got, "read the state's header"));
  if (!header_.ParseFromString(value)) return damaged("its header cannot be read");
  got = db_->Get({}, ToSlice(kLeadKey), &value);
  if (!got.IsNotFound()) {
    WEFT_RETURN_IF_ERROR(ToStatus(got, "read the state"));
    if (!lead_.ParseFromString(value)) return damaged("its leader cannot be read");
  }
  const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator({}));
  for (at->Seek(rocksdb::Slice(&kSessionPrefix, 1)); at->Valid(); at->Next()) {
    const std::string_view key = ToView(at->key());
    SessionRecord session;
    if (!DecodeSession(key, ToView(at->value()), &session)) {
      return damaged("a session cannot be read");
    }
    by_use_.emplace(session.used_index(), SessionOf(key));
    sessions_[SessionOf(key)] = std::move(session);
  }
  return ToStatus(at->status(), "read the state's sessions");
}

absl::Status StateMachine::Flush() { return ToStatus(db_->Flush({}), "flush the state"); }

// --- commands ------------------------------------------------------------------------------------

absl::Status StateMachine::Apply(uint64_t index, std::string_view bytes) {
  outcomes_.clear();
  if (index <= header_.applied_index()) return absl::OkStatus();
  Entry entry;
  if (!DecodeEntry(bytes, &entry)) {
    // The same bytes at all members: it does nothing anywhere.
    WEFT_LOG(kError, "entry ", index, " of the log, ", bytes.size(), " bytes, cannot be read");
    entry.Clear();
  }
  Batch batch(rocksdb::BytewiseComparator(), /*reserved_bytes=*/0, /*overwrite_key=*/true);
  outcomes_.resize(entry.commands_size());
  for (int i = 0; i < entry.commands_size(); ++i) {
    WEFT_RETURN_IF_ERROR(Run(entry.commands(i), index, &batch, &outcomes_[i]));
  }
  header_.set_applied_index(index);
  rocksdb::Status status = batch.Put(ToSlice(kHeaderKey), header_.SerializeAsString());
  rocksdb::WriteOptions write;
  write.disableWAL = true;
  if (status.ok()) status = db_->Write(write, batch.GetWriteBatch());
  return ToStatus(status, StrCat("apply entry ", index));
}

absl::Status StateMachine::Run(const Command& command, uint64_t index, Batch* batch,
                               Outcome* outcome) {
  switch (command.kind_case()) {
    case Command::kPut:
      return RunOnce(command, command.put().call_id(), index, batch, outcome);
    case Command::kRemove:
      return RunOnce(command, command.remove().call_id(), index, batch, outcome);
    case Command::kOpenSessions:
      return Open(command.open_sessions(), index, batch, outcome);
    case Command::kLead:
      lead_ = command.lead();
      return ToStatus(batch->Put(ToSlice(kLeadKey), lead_.SerializeAsString()), "write the leader");
    case Command::KIND_NOT_SET:
      break;
  }
  Set(absl::InvalidArgumentError("a command of a kind that this release does not know"), outcome);
  return absl::OkStatus();
}

absl::Status StateMachine::RunOnce(const Command& command, const kv::CallId& call, uint64_t index,
                                   Batch* batch, Outcome* outcome) {
  const auto run = [&] {
    return command.has_put() ? Put(command.put(), batch, outcome)
                             : Delete(command.remove(), batch, outcome);
  };
  if (call.session() == 0) return run();
  const auto found = sessions_.find(call.session());
  if (found == sessions_.end()) {
    Set(absl::FailedPreconditionError("the session is not known (any more): open another one"),
        outcome);
    return absl::OkStatus();
  }
  const SessionRecord& last = found->second;
  if (call.sequence() == last.last_sequence()) {
    *outcome = last.outcome();
    return absl::OkStatus();
  }
  if (call.sequence() < last.last_sequence()) {
    Set(absl::AbortedError("a later call of the session has run: this one has been given up"),
        outcome);
    return absl::OkStatus();
  }
  WEFT_RETURN_IF_ERROR(run());
  SessionRecord record;
  record.set_last_sequence(call.sequence());
  *record.mutable_outcome() = *outcome;
  record.set_used_index(index);
  return KeepSession(call.session(), std::move(record), batch);
}

absl::Status StateMachine::KeepSession(uint64_t id, SessionRecord record, Batch* batch) {
  const auto [at, is_new] = sessions_.try_emplace(id);
  if (!is_new) by_use_.erase({at->second.used_index(), id});
  by_use_.emplace(record.used_index(), id);
  rocksdb::Status status = batch->Put(SessionKey(id), record.SerializeAsString());
  at->second = std::move(record);
  while (status.ok() && sessions_.size() > options_.max_sessions) {
    const uint64_t oldest = by_use_.begin()->second;
    by_use_.erase(by_use_.begin());
    sessions_.erase(oldest);
    status = batch->Delete(SessionKey(oldest));
  }
  return ToStatus(status, "write a session");
}

absl::Status StateMachine::Open(const OpenSessions& request, uint64_t index, Batch* batch,
                                Outcome* outcome) {
  if (request.ids_size() < 1 || request.ids_size() > static_cast<int>(kMaxSessionsAtOnce)) {
    Set(absl::InvalidArgumentError(StrCat("1 to ", kMaxSessionsAtOnce,
                                          " sessions can be opened at once; these are ",
                                          request.ids_size())),
        outcome);
    return absl::OkStatus();
  }
  for (const uint64_t id : request.ids()) {
    SessionRecord record;
    record.set_used_index(index);
    WEFT_RETURN_IF_ERROR(KeepSession(id, std::move(record), batch));
  }
  return absl::OkStatus();
}

absl::Status StateMachine::Find(const Batch& batch, std::string_view key, std::string* block,
                                bool* found) {
  Batch& readable = const_cast<Batch&>(batch);  // it only reads
  const rocksdb::Status status =
      readable.GetFromBatchAndDB(db_.get(), rocksdb::ReadOptions(), RecordKey(key), block);
  *found = status.ok();
  return status.IsNotFound() ? absl::OkStatus() : ToStatus(status, "read a record");
}

absl::Status StateMachine::Check(const kv::PutRequest& request, const kv::StoreLimits& limits) {
  std::vector<kv::FieldView> fields;
  return CheckPut(request, limits, &fields);
}

absl::Status StateMachine::Put(const kv::PutRequest& request, Batch* batch, Outcome* outcome) {
  const kv::StoreLimits& limits = options_.limits;
  const std::string& key = request.key();
  std::vector<kv::FieldView> fields;
  absl::Status checked = CheckPut(request, limits, &fields);
  if (!checked.ok()) {
    Set(checked, outcome);
    return absl::OkStatus();
  }
  std::string block;
  bool existed = false;
  WEFT_RETURN_IF_ERROR(Find(*batch, key, &block, &existed));
  kv::Record record;
  if (request.mode() == kv::PutRequest::UPDATE) {
    if (!existed) {
      Set(absl::NotFoundError("no record has this key"), outcome);
      return absl::OkStatus();
    }
    record = RecordOf(block);
  }
  const kv::Record::Size size = record.SizeAfter(fields);
  const uint64_t old_charge = existed ? Charge(key, block.size()) : 0;
  const uint64_t new_charge = Charge(key, size.bytes);
  checked = limits.CheckSize(size);
  if (checked.ok()) checked = limits.CheckRoom(header_.bytes(), old_charge, new_charge);
  if (!checked.ok()) {
    Set(checked, outcome);
    return absl::OkStatus();
  }
  record.Update(fields);
  header_.set_bytes(header_.bytes() - old_charge + new_charge);
  if (!existed) header_.set_records(header_.records() + 1);
  outcome->set_flag(!existed);
  return ToStatus(batch->Put(RecordKey(key), ToSlice(record.block())), "write a record");
}

absl::Status StateMachine::Delete(const kv::DeleteRequest& request, Batch* batch,
                                  Outcome* outcome) {
  std::string block;
  bool existed = false;
  WEFT_RETURN_IF_ERROR(Find(*batch, request.key(), &block, &existed));
  outcome->set_flag(existed);
  if (!existed) return absl::OkStatus();
  header_.set_bytes(header_.bytes() - Charge(request.key(), block.size()));
  header_.set_records(header_.records() - 1);
  return ToStatus(batch->Delete(RecordKey(request.key())), "delete a record");
}

// --- reads ---------------------------------------------------------------------------------------

absl::Status StateMachine::Get(std::string_view key, kv::GetReply* reply) const {
  rocksdb::PinnableSlice block;
  const rocksdb::Status status =
      db_->Get(rocksdb::ReadOptions(), db_->DefaultColumnFamily(), RecordKey(key), &block);
  if (status.IsNotFound()) return absl::NotFoundError("no record has this key");
  WEFT_RETURN_IF_ERROR(ToStatus(status, "read a record"));
  CopyFields(ToView(block), reply);
  return absl::OkStatus();
}

absl::Status StateMachine::Scan(const kv::ScanRequest& request, kv::ScanReply* reply) const {
  const uint32_t asked = request.limit() == 0 ? kv::kMaxScanRecords : request.limit();
  uint32_t records_left = std::min(asked, kv::kMaxScanRecords);
  size_t bytes = 0;
  const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator({}));
  for (at->Seek(RecordKey(request.start())); at->Valid(); at->Next()) {
    std::string_view key = ToView(at->key());
    if (key[0] != kRecordPrefix) break;
    key.remove_prefix(1);
    bytes += key.size() + at->value().size();
    if (records_left == 0 || (bytes > kv::kMaxScanBytes && reply->records_size() > 0)) {
      reply->set_more(true);
      break;
    }
    --records_left;
    kv::ScanReply::Record* const record = reply->add_records();
    record->set_key(key.data(), key.size());
    CopyFields(ToView(at->value()), record);
  }
  return ToStatus(at->status(), "scan records");
}

}  // namespace raftkv
