// kv_server: the key-value service of kv.proto, in memory, until SIGINT or SIGTERM.
//
// Its first line on stdout is "listening on ADDRESS": whoever started it waits for that line.
// Exit status: 0 stopped by a signal, 1 could not start, 2 the command line is wrong.
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_format.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "examples/kv/index/exported_index.h"
#include "examples/kv/kv_service.h"
#include "examples/kv/store.h"
#include "examples/kv/upgrade.h"
#include "examples/process/service_manager.h"
#include "examples/process/stop_signal.h"
#include "weft/authorization.h"
#include "weft/engine.h"
#include "weft/path.h"
#include "weft/security.h"
#include "weft/server.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:0",
          "address to serve at: host:port, [v6]:port or unix:/path; port 0: any free one; "
          "systemd:NAME: the socket of this name that systemd has opened");
ABSL_FLAG(std::string, address_file, "", "write the address to this file once it is served");
ABSL_FLAG(std::string, paths, "",
          "paths that clients may use: shm,tcp; empty: WEFT_PATHS or all there are");
ABSL_FLAG(
    std::string, policy, "",
    "file with the rules who may call what (weft/authorization.h); it is watched, and without "
    "one everybody who can connect may call everything");
ABSL_FLAG(
    std::string, handover, "",
    "absolute path of a socket: the next kv_server with the same flags takes over from this one "
    "without a refused call, and gets the records by the file of this name with .records");
ABSL_FLAG(uint32_t, handover_grace_ms, 5000,
          "how long clients may take to move then, and their calls to end");
ABSL_FLAG(uint64_t, max_mib, 4096, "memory for records, in MiB; beyond it puts are refused");
ABSL_FLAG(uint64_t, index_mib, 256,
          "memory for the index that clients read by themselves, in MiB; records beyond it are got "
          "by calls; 0: none");
ABSL_FLAG(uint32_t, max_connections, 1024, "further clients are refused");
ABSL_FLAG(uint32_t, max_connections_of_one, 0,
          "connections of one client (by certificate, else user or address); 0: all but an eighth, "
          "which is for clients with less than their share");
ABSL_FLAG(uint32_t, max_outstanding, 256, "calls under way for each client");
ABSL_FLAG(uint32_t, spin_us, 50,
          "how long to look for work before sleeping; more answers sooner and costs CPU");
ABSL_FLAG(bool, busy, false, "never sleep: one CPU for the lowest latency");
ABSL_FLAG(int, cpu, -1, "pin the engine's thread to this CPU; -1: do not");

namespace kv {
namespace {

// How long running calls may take once the server is told to stop. Handlers take microseconds:
// more than enough, and short enough for whoever waits.
constexpr uint64_t kGraceUs = 1'000'000;

using Security = std::optional<weft::SecurityOptions>;

// Null: there is to be none.
absl::StatusOr<std::unique_ptr<weft::PolicyFile>> OpenPolicy() {
  const std::string path = absl::GetFlag(FLAGS_policy);
  if (path.empty()) return nullptr;
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<weft::PolicyFile> policy, weft::PolicyFile::Open(path));
  if (policy->PermitsNothing()) {
    absl::FPrintF(
        stderr,
        "kv_server: WARNING: the policy %s permits nothing to anybody: every call will be "
        "refused until it has a rule such as `allow anyone-authenticated kv.Kv/*`\n",
        path);
  }
  return policy;
}

absl::StatusOr<weft::ServerOptions> ServerOptionsFromFlags(const Security& security,
                                                           weft::Authorizer* policy) {
  weft::ServerOptions options;
  options.authorizer = policy;
  options.name = "kv_server";
  options.security = security;
  options.max_connections = absl::GetFlag(FLAGS_max_connections);
  options.max_connections_of_one = absl::GetFlag(FLAGS_max_connections_of_one);
  options.max_outstanding_calls = absl::GetFlag(FLAGS_max_outstanding);
  options.spin_ns = absl::GetFlag(FLAGS_busy) ? weft::kSpinForever
                                              : absl::GetFlag(FLAGS_spin_us) * weft::kNsPerUs;
  options.cpu = absl::GetFlag(FLAGS_cpu);
  const std::string paths = absl::GetFlag(FLAGS_paths);
  if (!paths.empty()) {
    WEFT_ASSIGN_OR_RETURN(options.link.paths, weft::ParsePathList(paths));
  }
  return options;
}

StoreLimits LimitsFromFlags() {
  StoreLimits limits;
  limits.max_bytes = absl::GetFlag(FLAGS_max_mib) << 20;
  return limits;
}

// What is there with --handover: the records come from the process before, on a thread that waits
// for them, and go to the next one.
class Succession {
 public:
  Succession(KvService* service, weft::Server* server, WaitingKv* waiting)
      : service_(*service), server_(*server), waiting_(*waiting) {}
  ~Succession() { static_cast<void>(Stop()); }

  absl::Status Start(const std::string& path) {
    WEFT_ASSIGN_OR_RETURN(records_, KeptRecords::Open(path + ".records"));
    thread_ = std::thread([this] {
      status_ = records_->Lock(stop_);
      if (status_.ok()) RunOnEngine([this] { Load(); });
      if (!status_.ok()) RunOnEngine([this] { waiting_.Refuse(); });
      if (!status_.ok() && !stop_) kill(getpid(), SIGTERM);
    });
    return absl::OkStatus();
  }
  // Waits no more. The outcome: whether this process has the records.
  absl::Status Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return status_;
  }
  absl::Status Save(const Store& store) { return records_->Save(store); }

 private:
  // Handlers run on the engine, and so does what changes the store in their place.
  template <class Work>
  void RunOnEngine(Work work) {
    std::promise<void> done;
    const auto task = [&work, &done] {
      work();
      done.set_value();
    };
    while (!server_.engine().Post(task)) std::this_thread::yield();
    done.get_future().wait();
  }
  void Load() {
    status_ = records_->Load(
        [this](std::string_view key, Fields fields) { return service_.Restore(key, fields); });
    if (status_.ok()) waiting_.Open();
  }

  KvService& service_;
  weft::Server& server_;
  WaitingKv& waiting_;
  std::unique_ptr<KeptRecords> records_;
  std::atomic<bool> stop_ = false;
  absl::Status status_;  // the thread's until Stop()
  std::thread thread_;
};

absl::Status WriteAddress(const std::string& path, const std::string& address) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return weft::StatusFromErrno(errno, weft::StrCat("open ", path));
  const bool written = absl::FPrintF(file, "%s\n", address) >= 0;
  if (std::fclose(file) != 0 || !written) {
    return weft::StatusFromErrno(errno, weft::StrCat("write ", path));
  }
  return absl::OkStatus();
}

absl::Status Announce(const std::string& address) {
  const std::string path = absl::GetFlag(FLAGS_address_file);
  if (!path.empty()) {
    WEFT_RETURN_IF_ERROR(WriteAddress(path, address));
  }
  absl::PrintF("listening on %s\n", address);
  std::fflush(stdout);
  return absl::OkStatus();
}

void PrintSummary(const weft::ServerStats& stats, const Store& store,
                  const index::ExportedIndex* index) {
  absl::PrintF("served %d requests: %d ok, %d failed, %d refused; %d broken connections\n",
               stats.requests, stats.replies_ok, stats.replies_failed - stats.refused,
               stats.refused, stats.protocol_errors);
  absl::PrintF("held %d records in %.1f MiB\n", store.size(),
               static_cast<double>(store.bytes()) / (1 << 20));
  if (index == nullptr) return;
  absl::PrintF("showed %d of them in an index, %.1f MiB\n", index->index().records(),
               static_cast<double>(index->index().heap_used_bytes()) / (1 << 20));
}

// The index, where there is to be one.
absl::StatusOr<std::unique_ptr<index::ExportedIndex>> MakeIndex(weft::Server& server) {
  const uint64_t bytes = absl::GetFlag(FLAGS_index_mib) << 20;
  if (bytes == 0) return nullptr;
  return index::ExportedIndex::Create(server, bytes);
}

absl::Status Serve(const Security& security) {
  examples::StopSignal stop;  // before the server: before any thread
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<weft::PolicyFile> policy, OpenPolicy());
  WEFT_ASSIGN_OR_RETURN(weft::ServerOptions options,
                        ServerOptionsFromFlags(security, policy.get()));
  const std::string handover = absl::GetFlag(FLAGS_handover);
  std::atomic<bool> handed_over = false;
  if (!handover.empty()) options.max_sessions = 0;
  options.handover_path = handover;
  options.on_handed_over = [&handed_over] {
    handed_over = true;
    kill(getpid(), SIGTERM);
  };
  Store store(LimitsFromFlags());
  KvService service(&store);
  WaitingKv waiting(&service);
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<weft::Server> server, weft::Server::Create(options));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<index::ExportedIndex> index, MakeIndex(*server));
  service.set_index(index.get());
  service.set_server(server.get());
  Succession succession(&service, server.get(), &waiting);
  WEFT_RETURN_IF_ERROR(handover.empty() ? server->AddService(&service)
                                        : server->AddService(&waiting));
  WEFT_RETURN_IF_ERROR(server->Listen(absl::GetFlag(FLAGS_listen)));
  if (!handover.empty()) {
    WEFT_RETURN_IF_ERROR(succession.Start(handover));
    WEFT_RETURN_IF_ERROR(server->Ready());
  }
  // After an upgrade it is this process that the manager looks after. It has to hear of it before
  // the one before has ended, which ends its calls first.
  examples::NotifyServiceManager(weft::StrCat("READY=1\nMAINPID=", getpid()));
  WEFT_RETURN_IF_ERROR(Announce(server->address()));
  const int signal = stop.Wait();
  if (!handed_over) examples::NotifyServiceManager("STOPPING=1");
  absl::PrintF("stopping on %s\n", handed_over        ? "a handover"
                                   : signal == SIGINT ? "SIGINT"
                                                      : "SIGTERM");
  const absl::Status has_records = handover.empty() ? absl::OkStatus() : succession.Stop();
  server->Shutdown(handed_over ? uint64_t{absl::GetFlag(FLAGS_handover_grace_ms)} * 1000
                               : kGraceUs);
  PrintSummary(server->stats(), store, index.get());
  if (handover.empty()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(has_records);
  return succession.Save(store);
}

}  // namespace
}  // namespace kv

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(weft::StrCat(
      "kv_server: a key-value store over Weft (examples/README.md)\n\n", weft::kSecurityFlagsHelp));
  const auto security = weft::TakeSecurityFlags(&argc, argv);
  if (!security.ok()) {
    absl::FPrintF(stderr, "kv_server: %s\n", security.status().ToString());
    return 2;
  }
  if (absl::ParseCommandLine(argc, argv).size() > 1) {
    absl::FPrintF(stderr, "kv_server: takes flags only (kv_server --help)\n");
    return 2;
  }
  const absl::Status status = kv::Serve(*security);
  if (status.ok()) return 0;
  absl::FPrintF(stderr, "kv_server: %s\n", status.ToString());
  return 1;
}
