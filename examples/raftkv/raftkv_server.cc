// raftkv_server: a member of a group that keeps one key-value store, until SIGINT or SIGTERM.
//
//   raftkv_server --id=1 --dir=/var/lib/kv --member_address=10.0.0.1:9001 --listen=10.0.0.1:9101
//       --bootstrap=1=10.0.0.1:9001,2=10.0.0.2:9001,3=10.0.0.3:9001
//
// Its first line on stdout is "listening on ADDRESS", where clients reach it. One thread does all:
// libuv's loop, with libraft's disk half, and Weft's engine in it (embed/raft/uv_engine.h);
// snapshots are read on libuv's pool. --dir has two folders: `log`, which is libraft's, and
// `state`, RocksDB's, which can be made again from the former. A file `memory_counts` beside them
// says that others may hold for acknowledged what the member has in memory alone
// (--replication=remote-writes). If it is there at the start, the member waits for a leader before
// it votes; who removes it decides that such entries may be lost.
//
// SIGTERM hands leadership over before the member ends. A disk that fails ends it at once.
// Exit status: 0 stopped by a signal, 1 could not start, or could not go on, 2 the command line is
// wrong.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "core/status.h"
#include "core/strings.h"
#include "embed/raft/libraft.h"
#include "embed/raft/raft_network.h"
#include "embed/raft/uv_engine.h"
#include "examples/raftkv/replica.h"
#include "examples/raftkv/services.h"
#include "examples/raftkv/state_machine.h"
#include "weft/engine.h"
#include "weft/path.h"
#include "weft/security.h"
#include "weft/server.h"

extern "C" {
#include <raft/uv.h>
}

ABSL_FLAG(uint64_t, id, 0,
          "number of this member, 1 or more; no other's, also not a removed one's");
ABSL_FLAG(std::string, dir, "", "folder of its log and state; made if it is not there");
ABSL_FLAG(std::string, member_address, "",
          "where other members reach it: host:port, [v6]:port or unix:/path; --network=uv: numeric "
          "host:port");
ABSL_FLAG(std::string, listen, "127.0.0.1:0", "where clients reach it; port 0: any free one");
ABSL_FLAG(
    std::vector<std::string>, bootstrap, {},
    "the members of a new group, the same at each: ID=ADDRESS,ID=ADDRESS,...; members that are "
    "added later have none");
ABSL_FLAG(std::string, network, "weft", "how members speak: weft, or uv, libraft's own TCP");
ABSL_FLAG(
    std::string, replication, "messages",
    "how entries get to other members: messages, or ring: written into their memory, where "
    "they say so too; or remote-writes, with less DURABILITY: what is committed is on the "
    "leader's disk and in the memory of others, so that a minority may be killed at any time, "
    "but after a majority has ended at once (a power cut) the group stands still until "
    "somebody removes the files DIR/memory_counts and thereby gives up entries");
ABSL_FLAG(std::string, member_uri, "",
          "with --tls-...: the URI in the certificate of every member, which only members have");
ABSL_FLAG(uint32_t, election_ms, 1000, "silence of a leader after which another is elected");
ABSL_FLAG(uint32_t, heartbeat_ms, 100, "between a leader's signs of life");
ABSL_FLAG(uint32_t, snapshot_entries, 65536, "entries of the log between two snapshots");
ABSL_FLAG(uint32_t, spin_us, 0,
          "how long to look for work before sleeping; more answers sooner where a core is free");
ABSL_FLAG(uint32_t, max_connections, 1024, "further clients are refused");
ABSL_FLAG(uint32_t, max_connections_of_one, 0,
          "connections of one client (by certificate, else user or address); 0: all but an eighth, "
          "which is for clients with less than their share");

namespace raftkv {
namespace {

using weft::StrCat;
using weft::embed::RaftNetwork;
using weft::embed::RaftNetworkOptions;
using weft::embed::RaftReplication;
using weft::embed::UvEngine;

constexpr uint64_t kTidyMs = 1'000;  // RaftNetwork::Tidy()

// A transport of libraft's disk half that nobody comes by and nothing goes by.
raft_uv_transport NoTransport() {
  raft_uv_transport none = {};
  none.init = [](raft_uv_transport*, raft_id, const char*) { return 0; };
  none.listen = [](raft_uv_transport*, raft_uv_accept_cb) { return 0; };
  none.connect = [](raft_uv_transport*, raft_uv_connect*, raft_id, const char*,
                    raft_uv_connect_cb) -> int { return RAFT_NOCONNECTION; };
  none.close = [](raft_uv_transport* transport, raft_uv_transport_close_cb closed) {
    closed(transport);
  };
  return none;
}

absl::Status MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  return weft::StatusFromErrno(errno, StrCat("make the folder ", path));
}

absl::StatusOr<std::vector<Replica::Voter>> VotersFromFlags() {
  std::vector<Replica::Voter> voters;
  for (const std::string& word : absl::GetFlag(FLAGS_bootstrap)) {
    const size_t equals = word.find('=');
    char* end = nullptr;
    const unsigned long long id = std::strtoull(word.c_str(), &end, 10);
    if (equals == std::string::npos || end != word.c_str() + equals || id == 0) {
      return absl::InvalidArgumentError(
          StrCat("--bootstrap: \"", word, "\" is not ID=ADDRESS, with an ID of 1 or more"));
    }
    voters.push_back({id, word.substr(equals + 1)});
  }
  return voters;
}

// Makes the file or removes it; either is on the disk then.
absl::Status KeepMark(const std::string& folder, bool mark) {
  const std::string path = folder + "/memory_counts";
  if (mark) {
    const int file = open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (file < 0) return weft::StatusFromErrno(errno, StrCat("make the file ", path));
    const int synced = fsync(file);
    const int error = errno;
    close(file);
    if (synced != 0) return weft::StatusFromErrno(error, StrCat("sync the file ", path));
  } else if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return weft::StatusFromErrno(errno, StrCat("remove the file ", path));
  }
  const int directory = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return weft::StatusFromErrno(errno, StrCat("open the folder ", folder));
  const int synced = fsync(directory);
  const int error = errno;
  close(directory);
  if (synced != 0) return weft::StatusFromErrno(error, StrCat("sync the folder ", folder));
  return absl::OkStatus();
}

bool HasMark(const std::string& folder) {
  // What cannot be looked at may be there: a member that takes it for missing votes too early.
  return access((folder + "/memory_counts").c_str(), F_OK) == 0 || errno != ENOENT;
}

ReplicaOptions OptionsFromFlags() {
  ReplicaOptions options;
  options.id = absl::GetFlag(FLAGS_id);
  options.address = absl::GetFlag(FLAGS_member_address);
  options.election_ms = absl::GetFlag(FLAGS_election_ms);
  options.heartbeat_ms = absl::GetFlag(FLAGS_heartbeat_ms);
  options.snapshot_entries = absl::GetFlag(FLAGS_snapshot_entries);
  return options;
}

absl::StatusOr<RaftNetworkOptions> NetworkOptionsFor(
    const std::string& folder, const std::optional<weft::SecurityOptions>& security) {
  RaftNetworkOptions options;
  options.group = "raftkv";
  const std::string replication = absl::GetFlag(FLAGS_replication);
  if (replication == "ring") {
    options.replication = RaftReplication::kRing;
  } else if (replication == "remote-writes") {
    options.replication = RaftReplication::kRemoteWrites;
  } else if (replication != "messages") {
    return absl::InvalidArgumentError(
        StrCat("--replication=", replication, " is neither messages, ring, nor remote-writes"));
  }
  options.keep_memory_mark = [folder](bool mark) { return KeepMark(folder, mark); };
  options.memory_was_lost = HasMark(folder);
  if (!security.has_value()) return options;
  weft::SecurityOptions members = *security;
  members.require_client_certificate = true;
  members.expected_uri = absl::GetFlag(FLAGS_member_uri);
  if (members.expected_uri.empty()) {
    return absl::InvalidArgumentError(
        "--tls-... needs --member_uri: by what a member's certificate differs from a client's");
  }
  options.server.security = members;
  options.channel.security = members;
  return options;
}

// One member: from its flags to its end. Everything happens on the loop's thread.
class Member {
 public:
  absl::Status Run(const std::optional<weft::SecurityOptions>& security) {
    WEFT_RETURN_IF_ERROR(Open(security));
    std::cout << "listening on " << server_->address() << std::endl;
    uv_run(&loop_, UV_RUN_DEFAULT);
    Close();
    return absl::OkStatus();
  }

 private:
  absl::Status Open(const std::optional<weft::SecurityOptions>& security) {
    const std::string folder = absl::GetFlag(FLAGS_dir);
    if (folder.empty() || absl::GetFlag(FLAGS_member_address).empty()) {
      return absl::InvalidArgumentError("--id, --dir and --member_address are needed");
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<Replica::Voter> voters, VotersFromFlags());
    WEFT_RETURN_IF_ERROR(MakeFolder(folder));
    WEFT_RETURN_IF_ERROR(MakeFolder(folder + "/log"));
    WEFT_ASSIGN_OR_RETURN(state_, StateMachine::Open(folder + "/state"));
    WEFT_ASSIGN_OR_RETURN(engine_,
                          weft::OpenNetworkEngine(
                              {.drive = weft::EngineOptions::Drive::kExternal, .name = "raftkv"}));
    if (const int code = uv_loop_init(&loop_); code != 0) {
      return absl::InternalError(StrCat("uv_loop_init: ", uv_strerror(code)));
    }
    WEFT_ASSIGN_OR_RETURN(driver_, UvEngine::Start(&loop_, *engine_, absl::GetFlag(FLAGS_spin_us)));
    WEFT_RETURN_IF_ERROR(OpenReplica(folder, security));
    WEFT_RETURN_IF_ERROR(Serve(security));
    WEFT_RETURN_IF_ERROR(voters.empty() ? absl::OkStatus() : replica_->Bootstrap(voters));
    WEFT_RETURN_IF_ERROR(replica_->Start(server_->address()));
    for (uv_signal_t* const signal : {&terminate_, &interrupt_}) {
      uv_signal_init(&loop_, signal);
      signal->data = this;
    }
    uv_timer_init(&loop_, &tidy_);
    tidy_.data = this;
    const auto tidy = [](uv_timer_t* timer) {
      auto* const self = static_cast<Member*>(timer->data);
      if (self->network_ != nullptr) self->network_->Tidy();
    };
    uv_timer_start(&tidy_, tidy, kTidyMs, kTidyMs);
    const auto stop = [](uv_signal_t* signal, int) { static_cast<Member*>(signal->data)->Stop(); };
    uv_signal_start(&terminate_, stop, SIGTERM);
    uv_signal_start(&interrupt_, stop, SIGINT);
    return absl::OkStatus();
  }

  absl::Status OpenReplica(const std::string& folder,
                           const std::optional<weft::SecurityOptions>& security) {
    const std::string kind = absl::GetFlag(FLAGS_network);
    if (kind != "weft" && kind != "uv") {
      return absl::InvalidArgumentError(StrCat("--network=", kind, " is neither weft nor uv"));
    }
    libraft_tcp_ = kind == "uv";
    if (libraft_tcp_ && HasMark(folder)) {
      return absl::FailedPreconditionError(StrCat(
          folder,
          "/memory_counts is there: this member was killed with --replication=remote-writes, "
          "and may vote when a leader has made up for its memory, which --network=uv cannot do. "
          "Start it with --network=weft, and end it by SIGTERM when it has caught up"));
    }
    if (libraft_tcp_ && security.has_value()) {
      return absl::InvalidArgumentError("--network=uv has no TLS: leave --tls-... out, or it");
    }
    if (libraft_tcp_) {
      raft_uv_tcp_init(&transport_, &loop_);
    } else {
      transport_ = NoTransport();
    }
    if (const int code = raft_uv_init(&io_, &loop_, (folder + "/log").c_str(), &transport_);
        code != 0) {
      return absl::InternalError(StrCat("raft_uv_init: ", io_.errmsg));
    }
    // It says 1, and has what 2 asks for: async_work().
    io_.version = 2;
    if (!libraft_tcp_) {
      WEFT_ASSIGN_OR_RETURN(const RaftNetworkOptions options, NetworkOptionsFor(folder, security));
      WEFT_ASSIGN_OR_RETURN(network_, RaftNetwork::Attach(&io_, *engine_, options));
    }
    WEFT_ASSIGN_OR_RETURN(
        replica_, Replica::Create(&io_, state_.get(), OptionsFromFlags(), [](const auto& why) {
          std::cerr << "raftkv_server: " << why << "; this member ends. Mend it, and start it again"
                    << std::endl;
          _exit(1);
        }));
    return absl::OkStatus();
  }

  absl::Status Serve(const std::optional<weft::SecurityOptions>& security) {
    kv_ = std::make_unique<KvService>(replica_.get(), state_.get());
    cluster_ = std::make_unique<ClusterService>(replica_.get(), network_.get());
    weft::ServerOptions options;
    KvService::LimitServer(state_->limits(), &options);
    options.name = "raftkv_server";
    options.security = security;
    options.max_connections = absl::GetFlag(FLAGS_max_connections);
    options.max_connections_of_one = absl::GetFlag(FLAGS_max_connections_of_one);
    WEFT_ASSIGN_OR_RETURN(server_, weft::Server::Create(*engine_, options));
    WEFT_RETURN_IF_ERROR(server_->AddService(kv_.get()));
    WEFT_RETURN_IF_ERROR(server_->AddService(cluster_.get()));
    return server_->Listen(absl::GetFlag(FLAGS_listen));
  }

  // By a signal. Whoever votes next should know all that this one does: so it hands over first.
  void Stop() {
    for (uv_signal_t* const signal : {&terminate_, &interrupt_}) {
      uv_close(reinterpret_cast<uv_handle_t*>(signal), nullptr);
    }
    uv_close(reinterpret_cast<uv_handle_t*>(&tidy_), nullptr);
    replica_->Transfer(0, [this](const absl::Status&) {
      // Not inside of libraft's function that has called back.
      closing_.data = this;
      uv_idle_init(&loop_, &closing_);
      uv_idle_start(&closing_, [](uv_idle_t* idle) {
        uv_close(reinterpret_cast<uv_handle_t*>(idle), nullptr);
        auto* const self = static_cast<Member*>(idle->data);
        self->replica_->Close([self] { self->driver_->Stop([] {}); });
      });
    });
  }

  // The loop has ended; this thread drives what is left to do.
  void Close() {
    std::cout << "carried out " << replica_->stats().commands << " commands in "
              << replica_->stats().entries << " entries as leader; "
              << server_->stats().protocol_errors << " broken connections" << std::endl;
    server_.reset();
    network_.reset();
    replica_.reset();
    raft_uv_close(&io_);
    if (libraft_tcp_) raft_uv_tcp_close(&transport_);
    uv_loop_close(&loop_);
  }

  uv_loop_t loop_ = {};
  raft_uv_transport transport_ = {};
  bool libraft_tcp_ = false;
  raft_io io_ = {};
  uv_signal_t terminate_ = {};
  uv_signal_t interrupt_ = {};
  uv_timer_t tidy_ = {};
  uv_idle_t closing_ = {};
  std::unique_ptr<weft::Engine> engine_;
  std::unique_ptr<UvEngine> driver_;
  std::unique_ptr<StateMachine> state_;
  std::unique_ptr<RaftNetwork> network_;  // null: libraft's TCP
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<KvService> kv_;
  std::unique_ptr<ClusterService> cluster_;
  std::unique_ptr<weft::Server> server_;
};

}  // namespace
}  // namespace raftkv

int main(int argc, char** argv) {
  // libuv writes to connections whose other side is gone.
  std::signal(SIGPIPE, SIG_IGN);
  absl::SetProgramUsageMessage(weft::StrCat(
      "raftkv_server: a member of a replicated key-value store (examples/README.md)\n\n",
      weft::kSecurityFlagsHelp));
  const auto security = weft::TakeSecurityFlags(&argc, argv);
  if (!security.ok()) {
    std::cerr << "raftkv_server: " << security.status() << std::endl;
    return 2;
  }
  if (absl::ParseCommandLine(argc, argv).size() > 1) {
    std::cerr << "raftkv_server: takes flags only (raftkv_server --help)" << std::endl;
    return 2;
  }
  // What is open when it cannot start goes with the process: nothing was promised to anybody.
  static auto* const member = new raftkv::Member;
  const absl::Status status = member->Run(*security);
  if (status.ok()) return 0;
  std::cerr << "raftkv_server: " << status << std::endl;
  std::cerr.flush();
  _exit(1);
}
