#include "examples/raftkv/simulation.h"

#include <rocksdb/env.h>

#include <cstdarg>

#include "core/check.h"

namespace raftkv::test {
namespace {

// A log of RocksDB's that nobody reads.
class NoLog final : public rocksdb::Logger {
 public:
  NoLog() : Logger(rocksdb::HEADER_LEVEL) {}
  using Logger::Logv;
  void Logv(const char*, va_list) override {}
};

// Files in memory, but for one that nobody reads and that costs more than all else of a database
// that is opened: RocksDB writes its options down, as text, and reads them again to see whether it
// did well. It goes on without (StateMachine lets it).
class MemoryEnv final : public rocksdb::EnvWrapper {
 public:
  MemoryEnv() : EnvWrapper(std::unique_ptr<Env>(rocksdb::NewMemEnv(rocksdb::Env::Default()))) {}
  const char* Name() const override { return "MemoryEnv"; }
  rocksdb::Status NewWritableFile(const std::string& name,
                                  std::unique_ptr<rocksdb::WritableFile>* file,
                                  const rocksdb::EnvOptions& options) override {
    if (name.find("/OPTIONS-") != std::string::npos) {
      return rocksdb::Status::NotSupported("options are not written down");
    }
    return EnvWrapper::NewWritableFile(name, file, options);
  }
  // Of a database: the kernel's random number otherwise, read from a file.
  std::string GenerateUniqueId() override { return "00000000-0000-4000-8000-000000000000"; }
  rocksdb::Status NewLogger(const std::string&, std::shared_ptr<rocksdb::Logger>* log) override {
    *log = std::make_shared<NoLog>();
    return rocksdb::Status::OK();
  }
};

}  // namespace

SimMember::SimMember(weft::SimNetwork& network, std::string node, raft_id id, Disk* disk,
                     unsigned snapshot_entries, const std::vector<raft_id>& voters,
                     weft::embed::RaftReplication replication)
    : id_(id),
      node_(std::move(node)),
      disk_(*disk),
      env_(std::make_unique<MemoryEnv>()),
      io_(disk->log, network.Node(node_), id + std::hash<std::string>()(node_)) {
  StateOptions state;
  state.env = env_.get();
  auto opened = StateMachine::Open("/state", state);
  WEFT_CHECK(opened.ok());
  state_ = *std::move(opened);
  if (!disk_.state.empty()) WEFT_CHECK(state_->Restore(disk_.state).ok());
  weft::Engine& engine = network.Node(node_);
  weft::embed::RaftNetworkOptions network_options;
  network_options.replication = replication;
  network_options.ring_bytes = weft::embed::kMinRingBytes;  // it is full now and then, and wraps
  // Some kilobytes of a slab are used: it is not worth to clear a huge page for each member.
  network_options.channel.buffers.memory.huge_pages = weft::MappedMemoryOptions::HugePages::kNever;
  network_options.memory_was_lost = disk_.log.memory_mark;
  network_options.keep_memory_mark = [this](bool mark) {
    disk_.log.memory_mark = mark;
    return absl::OkStatus();
  };
  auto half = weft::embed::RaftNetwork::Attach(io_.io(), engine, network_options);
  WEFT_CHECK(half.ok());
  half_ = *std::move(half);
  ReplicaOptions options;
  options.id = id;
  options.address = MemberAddress(id);
  options.snapshot_entries = snapshot_entries;
  options.snapshots_on_a_thread = false;
  options.clock = &network.clock();
  auto replica =
      Replica::Create(io_.io(), state_.get(), options, [this](const auto&) { failed_ = true; });
  WEFT_CHECK(replica.ok());
  replica_ = *std::move(replica);
  kv_ = std::make_unique<KvService>(replica_.get(), state_.get());
  cluster_ = std::make_unique<ClusterService>(replica_.get(), half_.get());
  weft::ServerOptions server_options;
  KvService::LimitServer(state_->limits(), &server_options);
  auto server = weft::Server::Create(engine, server_options);
  WEFT_CHECK(server.ok());
  server_ = *std::move(server);
  WEFT_CHECK(server_->AddService(kv_.get()).ok());
  WEFT_CHECK(server_->AddService(cluster_.get()).ok());
  WEFT_CHECK(server_->Listen(ClientAddress(id)).ok());
  std::vector<Replica::Voter> members;
  for (const raft_id voter : voters) members.push_back({voter, MemberAddress(voter)});
  if (!members.empty()) WEFT_CHECK(replica_->Bootstrap(members).ok());
  const absl::Status started = replica_->Start(ClientAddress(id));
  WEFT_CHECK(started.ok());
}

SimMember::~SimMember() {
  io_.Die();
  half_.reset();
  replica_.reset();
  server_.reset();
}

void SimMember::FlushState() {
  std::vector<std::string> pieces;
  WEFT_CHECK(state_->TakeSnapshot()->Read(&pieces).ok());
  disk_.state.clear();
  for (const std::string& piece : pieces) disk_.state += piece;
}

std::string SimMember::Everything() const {
  kv::ScanReply reply;
  WEFT_CHECK(state_->Scan({}, &reply).ok());
  return std::to_string(header().applied_index()) + ": " + reply.SerializeAsString();
}

}  // namespace raftkv::test
