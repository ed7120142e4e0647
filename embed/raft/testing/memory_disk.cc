#include "embed/raft/testing/memory_disk.h"

#include <cstring>
#include <utility>

#include "core/clock.h"

namespace weft::embed::test {
namespace {

constexpr uint64_t kUsPerMs = 1000;

// Entries that libraft takes: one batch each.
int ToRaft(const std::deque<MemoryDisk::Entry>& from, raft_entry** to) {
  *to = nullptr;
  if (from.empty()) return 0;
  *to = static_cast<raft_entry*>(raft_calloc(from.size(), sizeof(raft_entry)));
  for (size_t i = 0; i < from.size(); ++i) {
    const std::string& bytes = from[i].bytes;
    void* const copy = raft_malloc(bytes.size() + 1);
    std::memcpy(copy, bytes.data(), bytes.size());
    (*to)[i] = {from[i].term, from[i].type, {copy, bytes.size()}, copy};
  }
  return 0;
}

raft_snapshot* ToRaft(const MemoryDisk::Snapshot& from) {
  auto* const to = static_cast<raft_snapshot*>(raft_calloc(1, sizeof(raft_snapshot)));
  to->index = from.index;
  to->term = from.term;
  to->configuration_index = from.configuration_index;
  raft_configuration_init(&to->configuration);
  for (const MemoryDisk::Server& server : from.configuration) {
    raft_configuration_add(&to->configuration, server.id, server.address.c_str(), server.role);
  }
  to->bufs = static_cast<raft_buffer*>(raft_malloc(sizeof(raft_buffer)));
  to->n_bufs = 1;
  to->bufs[0] = {raft_malloc(from.bytes.size() + 1), from.bytes.size()};
  std::memcpy(to->bufs[0].base, from.bytes.data(), from.bytes.size());
  return to;
}

MemoryDisk::Snapshot FromRaft(const raft_snapshot& from) {
  MemoryDisk::Snapshot to{from.index, from.term, {}, from.configuration_index, {}};
  for (unsigned i = 0; i < from.configuration.n; ++i) {
    const raft_server& server = from.configuration.servers[i];
    to.configuration.push_back({server.id, server.address, server.role});
  }
  for (unsigned i = 0; i < from.n_bufs; ++i) {
    to.bytes.append(static_cast<const char*>(from.bufs[i].base), from.bufs[i].len);
  }
  return to;
}

MemoryDiskIo& Self(const raft_io* io) { return *static_cast<MemoryDiskIo*>(io->impl); }

}  // namespace

struct MemoryDiskIo::Functions {
  static int Init(raft_io*, raft_id, const char*) { return 0; }

  static void Close(raft_io* io, raft_io_close_cb callback) {
    MemoryDiskIo& self = Self(io);
    self.ticks_.Cancel();
    self.disk_turns_.Cancel();
    self.left_at_close_ = self.writes_.size();
    while (!self.writes_.empty()) {
      const Write write = std::move(self.writes_.front());
      self.writes_.pop_front();
      write.tell(RAFT_CANCELED);
    }
    if (self.dead_) return callback(io);
    self.closing_.Set(0, [io, callback] { callback(io); });
  }

  static int Load(raft_io* io, raft_term* term, raft_id* voted_for, raft_snapshot** snapshot,
                  raft_index* start_index, raft_entry** entries, size_t* n_entries) {
    const MemoryDisk& disk = Self(io).disk_;
    *term = disk.term;
    *voted_for = disk.voted_for;
    *snapshot = disk.snapshot.has_value() ? ToRaft(*disk.snapshot) : nullptr;
    *start_index = disk.first_index;
    *n_entries = disk.entries.size();
    return ToRaft(disk.entries, entries);
  }

  static int Start(raft_io* io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb) {
    MemoryDiskIo& self = Self(io);
    self.tick_ms_ = msecs;
    self.tick_ = tick;
    self.Tick();
    return 0;
  }

  static int Bootstrap(raft_io* io, const raft_configuration* configuration) {
    MemoryDisk& disk = Self(io).disk_;
    if (disk.term != 0 || !disk.entries.empty()) return RAFT_CANTBOOTSTRAP;
    raft_buffer encoded;
    if (const int code = raft_configuration_encode(configuration, &encoded); code != 0) return code;
    disk.term = 1;
    disk.entries.push_back(
        {1, RAFT_CHANGE, std::string(static_cast<const char*>(encoded.base), encoded.len)});
    raft_free(encoded.base);
    return 0;
  }

  static int Recover(raft_io*, const raft_configuration*) { return RAFT_INVALID; }

  static int SetTerm(raft_io* io, raft_term term) {
    MemoryDisk& disk = Self(io).disk_;
    if (disk.fail_writes) return RAFT_IOERR;
    disk.term = term;
    disk.voted_for = 0;
    return 0;
  }

  static int SetVote(raft_io* io, raft_id id) {
    MemoryDisk& disk = Self(io).disk_;
    if (disk.fail_writes) return RAFT_IOERR;
    disk.voted_for = id;
    return 0;
  }

  static int Append(raft_io* io, raft_io_append* request, const raft_entry entries[], unsigned n,
                    raft_io_append_cb callback) {
    MemoryDisk& disk = Self(io).disk_;
    std::vector<MemoryDisk::Entry> added;
    for (unsigned i = 0; i < n; ++i) {
      added.push_back(
          {entries[i].term, entries[i].type,
           std::string(static_cast<const char*>(entries[i].buf.base), entries[i].buf.len)});
    }
    Self(io).Add({[&disk, added = std::move(added)]() mutable {
                    for (MemoryDisk::Entry& entry : added) {
                      disk.entries.push_back(std::move(entry));
                    }
                  },
                  [request, callback](int status) { callback(request, status); }});
    return 0;
  }

  static int Truncate(raft_io* io, raft_index index) {
    MemoryDisk& disk = Self(io).disk_;
    Self(io).Add({[&disk, index] {
                    const raft_index kept = index > disk.first_index ? index - disk.first_index : 0;
                    if (disk.entries.size() > kept) disk.entries.resize(kept);
                  },
                  [](int) {}});
    return 0;
  }

  // `trailing` 0: the snapshot is another member's, and takes the place of the whole log.
  static int SnapshotPut(raft_io* io, unsigned trailing, raft_io_snapshot_put* request,
                         const raft_snapshot* snapshot, raft_io_snapshot_put_cb callback) {
    MemoryDisk& disk = Self(io).disk_;
    Self(io).Add({[&disk, trailing, taken = FromRaft(*snapshot)]() mutable {
                    const raft_index last = taken.index;
                    disk.snapshot = std::move(taken);
                    if (trailing == 0) {
                      disk.entries.clear();
                      disk.first_index = last + 1;
                      return;
                    }
                    const raft_index from = last > trailing ? last - trailing + 1 : 1;
                    if (from <= disk.first_index) return;
                    const auto dropped = static_cast<ptrdiff_t>(from - disk.first_index);
                    disk.entries.erase(disk.entries.begin(), disk.entries.begin() + dropped);
                    disk.first_index = from;
                  },
                  [request, callback](int status) { callback(request, status); }});
    return 0;
  }

  static int SnapshotGet(raft_io* io, raft_io_snapshot_get* request,
                         raft_io_snapshot_get_cb callback) {
    MemoryDisk& disk = Self(io).disk_;
    Self(io).Add({[] {},
                  [&disk, request, callback](int status) {
                    callback(request, status == 0 ? ToRaft(*disk.snapshot) : nullptr, status);
                  }});
    return 0;
  }

  static raft_time Time(raft_io* io) { return Self(io).engine_.clock().NowNs() / kNsPerMs; }

  static int Random(raft_io* io, int min, int max) {
    return min + static_cast<int>(Self(io).random_() % static_cast<uint64_t>(max - min + 1));
  }
};

MemoryDiskIo::MemoryDiskIo(MemoryDisk& disk, Engine& engine, uint64_t seed)
    : disk_(disk),
      engine_(engine),
      random_(seed),
      ticks_(engine),
      disk_turns_(engine),
      closing_(engine) {
  io_.version = 1;
  io_.impl = this;
  io_.init = Functions::Init;
  io_.close = Functions::Close;
  io_.load = Functions::Load;
  io_.start = Functions::Start;
  io_.bootstrap = Functions::Bootstrap;
  io_.recover = Functions::Recover;
  io_.set_term = Functions::SetTerm;
  io_.set_vote = Functions::SetVote;
  io_.append = Functions::Append;
  io_.truncate = Functions::Truncate;
  io_.snapshot_put = Functions::SnapshotPut;
  io_.snapshot_get = Functions::SnapshotGet;
  io_.time = Functions::Time;
  io_.random = Functions::Random;
}

MemoryDiskIo::~MemoryDiskIo() = default;

void MemoryDiskIo::Die() {
  dead_ = true;
  ticks_.Cancel();
  disk_turns_.Cancel();
}

void MemoryDiskIo::Tick() {
  ticks_.Set(tick_ms_ * kUsPerMs, [this] {
    if (dead_) return;  // to cancel an alarm may take a turn of the engine
    Tick();
    tick_(&io_);
  });
}

void MemoryDiskIo::Add(Write write) {
  writes_.push_back(std::move(write));
  if (writes_.size() == 1) Next();
}

void MemoryDiskIo::Next() {
  disk_turns_.Set(disk_.sync_us, [this] {
    if (dead_) return;
    const Write write = std::move(writes_.front());
    writes_.pop_front();
    if (!disk_.fail_writes) write.carry_out();
    if (!writes_.empty()) Next();
    write.tell(disk_.fail_writes ? RAFT_IOERR : 0);
  });
}

}  // namespace weft::embed::test
