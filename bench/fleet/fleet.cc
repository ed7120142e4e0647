#include "bench/fleet/fleet.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/fleet/fleet.weft.h"
#include "core/check.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "core/timer_wheel.h"
#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "transport/engine.h"
#include "transport/sim/sim_network.h"

namespace weft::bench {
namespace {

using fleet::Result;
using fleet::Task;
using fleet::Work;

// Of the network, the servers and the channels: as little memory for each connection as will do.
constexpr uint32_t kSlotBytes = 512;
constexpr uint32_t kWindowSlots = 4;
constexpr uint32_t kOutstanding = 8;

uint64_t NextGapNs(Random& random, double mean_ns) {
  return static_cast<uint64_t>(-std::log(1 - random.UniformDouble()) * mean_ns);
}

// A server, whose calls take some time each.
class FleetServer final : public Work::Service {
 public:
  FleetServer(EngineCore& engine, uint32_t number, uint32_t service_us, uint64_t seed)
      : engine_(engine), number_(number), service_us_(service_us), random_(seed) {}

  absl::Status Start() {
    ServerOptions options;
    options.max_outstanding_calls = kOutstanding;
    options.max_streams = 0;
    options.link.window_slots = kWindowSlots;
    options.max_connections = 65536;
    WEFT_ASSIGN_OR_RETURN(server_, Server::Create(engine_, options));
    WEFT_RETURN_IF_ERROR(server_->AddService(this));
    return server_->Listen(address());
  }

  void StartDo(UnaryCall<Task, Result> call) override {
    ++calls;
    auto& running = running_.emplace_back(std::make_unique<Running>(*this, std::move(call)));
    if (hangs) return;
    AnswerSoon(*running);
  }
  // It answers again, also what it holds.
  void Recover() {
    hangs = false;
    for (const auto& running : running_) {
      if (!running->armed()) AnswerSoon(*running);
    }
  }

  std::string address() const { return StrCat("sim:s", number_); }
  // What runs here ends, clients leave, and it serves again.
  absl::Status Restart(FleetFigures& figures) {
    figures.running_at_shutdown += running_.size();
    const uint64_t cut_before = cut_;
    const uint64_t refused_before = server_->stats().refused;
    server_->Shutdown(kFleetGraceUs);
    figures.cut_by_shutdown += cut_ - cut_before;
    figures.refused_by_shutdown += server_->stats().refused - refused_before;
    server_.reset();
    calls_before_ = calls;
    return Start();
  }
  bool is_busy() const { return !running_.empty(); }
  uint64_t calls_again() const { return calls - calls_before_; }
  // Before its engine is gone; calls that it holds end as dropped.
  void Stop() {
    running_.clear();
    server_.reset();
  }

  uint64_t calls = 0;
  bool hangs = false;
  bool dead = false;
  bool left = false;  // the list

 private:
  struct Running final : Timer {
    Running(FleetServer& its_server, UnaryCall<Task, Result> its_call)
        : server(its_server), call(std::move(its_call)) {}
    void OnTimer() override {
      server.cut_ += call.context().cancelled();
      call.reply()->set_server(server.number_);
      call.Finish(absl::OkStatus());
      std::erase_if(server.running_, [this](const auto& one) { return one.get() == this; });
    }
    FleetServer& server;
    UnaryCall<Task, Result> call;
  };

  void AnswerSoon(Running& running) {
    engine_.timers().Schedule(&running,
                              engine_.clock().NowNs() + NextGapNs(random_, service_us_ * 1e3));
  }

  EngineCore& engine_;
  const uint32_t number_;
  const uint32_t service_us_;
  Random random_;
  uint64_t calls_before_ = 0;  // Restart()
  uint64_t cut_ = 0;           // calls that nobody waited for any more when they were answered
  std::vector<std::unique_ptr<Running>> running_;
  std::unique_ptr<Server> server_;
};

// A client, which calls at random times, whatever has become of its earlier calls.
class FleetClient final : private Timer {
 public:
  // `keys`: what its calls are about, as CallOptions::server_key; none: about nothing.
  FleetClient(EngineCore& engine, double calls_per_s, uint32_t timeout_us,
              const std::vector<uint64_t>& keys, uint64_t seed)
      : engine_(engine),
        gap_ns_(1e9 / calls_per_s),
        timeout_us_(timeout_us),
        keys_(keys),
        servers_of_keys_(keys.size(), kNone),
        random_(seed) {}

  absl::Status Open(const std::string& target, const ChannelOptions& options,
                    const BalancingOptions& balancing) {
    WEFT_ASSIGN_OR_RETURN(channel_, OpenBalanced(engine_, target, options, balancing));
    stub_.emplace(*channel_);
    return absl::OkStatus();
  }
  void Begin() { Next(); }
  void Pause() { engine_.timers().Cancel(this); }
  void Close() {
    stub_.reset();
    channel_.reset();
  }
  Channel& channel() { return *channel_; }

  uint64_t ok = 0;
  uint64_t failed = 0;
  uint64_t moved = 0;  // FleetPhase
  uint64_t under_way = 0;

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};

  void Next() {
    engine_.timers().Schedule(this, engine_.clock().NowNs() + NextGapNs(random_, gap_ns_));
  }
  void OnTimer() override {
    Next();
    ++under_way;
    task_.set_number(task_.number() + 1);
    auto* const result = new Result;
    const size_t key = keys_.empty() ? 0 : random_.Uniform(keys_.size());
    const CallOptions options = {.timeout_us = timeout_us_,
                                 .server_key = keys_.empty() ? 0 : keys_[key]};
    stub_->Do(task_, result, options, [this, result, key](const absl::Status& end) {
      --under_way;
      ++(end.ok() ? ok : failed);
      if (end.ok() && !keys_.empty()) {
        const uint64_t last = std::exchange(servers_of_keys_[key], result->server());
        moved += last != kNone && last != result->server();
      }
      delete result;
    });
  }

  EngineCore& engine_;
  const double gap_ns_;
  const uint32_t timeout_us_;
  const std::vector<uint64_t>& keys_;
  std::vector<uint64_t> servers_of_keys_;  // which has answered last; kNone: none
  Random random_;
  Task task_;
  std::unique_ptr<Channel> channel_;
  std::optional<Work::Stub> stub_;
};

// A file that names servers, in a folder of its own; both go with it.
class ServerFile {
 public:
  ServerFile() = default;
  ~ServerFile() {
    std::error_code ignored;  // it is in the folder for temporary files
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }
  ServerFile(const ServerFile&) = delete;
  ServerFile& operator=(const ServerFile&) = delete;

  absl::Status Open() {
    std::error_code ignored;
    std::string folder = (std::filesystem::temp_directory_path(ignored) / "weft-fleet-XXXXXX");
    if (::mkdtemp(folder.data()) == nullptr) return StatusFromErrno(errno, StrCat("make ", folder));
    folder_ = folder;
    return absl::OkStatus();
  }
  std::string path() const { return folder_ + "/servers"; }
  // By rename(2): nobody sees a part of it.
  absl::Status Write(const std::vector<ListedServer>& servers) const {
    const std::string next = folder_ + "/next";
    std::ofstream file(next, std::ios::trunc);
    for (const ListedServer& server : servers) file << server.address << '\n';
    file.close();
    if (file.fail()) return absl::UnavailableError(StrCat("cannot write ", next));
    if (std::rename(next.c_str(), path().c_str()) == 0) return absl::OkStatus();
    return StatusFromErrno(errno, StrCat("rename ", next));
  }

 private:
  std::string folder_;
};

class Fleet {
 public:
  explicit Fleet(const FleetOptions& options)
      : options_(options),
        network_(options.seed, {.slot_bytes = kSlotBytes}),
        random_(options.seed) {}
  ~Fleet() {
    for (const auto& client : clients_) client->Close();
    for (const auto& server : servers_) server->Stop();
  }

  absl::StatusOr<FleetFigures> Run() {
    WEFT_RETURN_IF_ERROR(Start());
    FleetFigures figures;
    WEFT_RETURN_IF_ERROR(Connect(figures));
    for (const auto& client : clients_) client->Begin();
    figures.steady = RunPhase(1, [] {});
    figures.killed = RunPhase(1, [&] { KillSome(figures); });
    figures.hung = RunPhase(1, [&] { HangSome(figures); });
    for (const auto& client : clients_) {
      for (const ServerFacts& facts : ServersOf(client->channel())) {
        figures.ejections += facts.ejections;
      }
    }
    EndHang();
    figures.drained = RunPhase(0.5, [&] { DrainSome(figures); });
    figures.restarted = RunPhase(0.5, [&] { RestartSome(figures); });
    figures.fewest_calls_again = FewestCallsAgain();
    network_.CheckInvariants();
    figures.trace_hash = network_.trace_hash();
    return figures;
  }

 private:
  EngineCore& Machine(const std::string& kind, uint32_t number) {
    return CoreOf(network_.Node(StrCat(kind, "-", number)));
  }
  uint64_t now_ns() { return network_.clock().NowNs(); }
  uint64_t phase_ns() const { return static_cast<uint64_t>(options_.seconds * 1e9); }

  absl::Status Start() {
    for (uint32_t i = 0; i < options_.servers; ++i) {
      // Those that will die come first.
      EngineCore& engine =
          i < options_.killed ? Machine("victim", i) : Machine("servers", i % options_.machines);
      servers_.push_back(
          std::make_unique<FleetServer>(engine, i, options_.service_us, random_.Next64()));
      WEFT_RETURN_IF_ERROR(servers_.back()->Start());
      addresses_.push_back({servers_.back()->address()});
    }
    ChannelOptions channel;
    channel.connect_at_once = false;
    channel.max_outstanding_calls = kOutstanding;
    channel.max_streams = 0;
    channel.link.window_slots = kWindowSlots;
    channel.retry.max_attempts = 3;
    if (options_.policy == BalancingPolicy::kConsistentHash) {
      for (uint32_t i = 0; i < options_.keys; ++i) keys_.push_back(ServerKeyOf(StrCat("key ", i)));
    }
    BalancingOptions balancing;
    balancing.policy = options_.policy;
    balancing.max_servers = options_.part;
    balancing.refresh_us = kFleetRefreshUs;
    std::string target = "list:";
    if (options_.naming == FleetNaming::kFile) {
      WEFT_RETURN_IF_ERROR(file_.Open());
      target = StrCat("file:", file_.path());
    }
    for (uint32_t i = 0; i < options_.clients; ++i) {
      balancing.client_number = i;
      clients_.push_back(std::make_unique<FleetClient>(Machine("clients", i % options_.machines),
                                                       options_.calls_per_s, options_.timeout_us,
                                                       keys_, random_.Next64()));
      WEFT_RETURN_IF_ERROR(clients_.back()->Open(target, channel, balancing));
    }
    return Name(addresses_);
  }

  absl::Status Name(const std::vector<ListedServer>& servers) {
    if (options_.naming == FleetNaming::kFile) return file_.Write(servers);
    for (const auto& client : clients_) {
      WEFT_RETURN_IF_ERROR(SetServers(client->channel(), servers));
    }
    return absl::OkStatus();
  }

  uint64_t CountReady() {
    uint64_t ready = 0;
    for (const auto& client : clients_) {
      for (const ServerFacts& facts : ServersOf(client->channel())) {
        ready += facts.state == ChannelState::kReady;
      }
    }
    return ready;
  }

  absl::Status Connect(FleetFigures& figures) {
    const uint64_t wanted = uint64_t{options_.clients} * std::min(options_.part, options_.servers);
    const uint64_t begin_ns = now_ns();
    while (figures.connections = CountReady(), figures.connections < wanted) {
      if (now_ns() - begin_ns > 60 * kNsPerSec) {
        return absl::DeadlineExceededError(
            StrCat("only ", figures.connections, " of ", wanted, " connections within a minute"));
      }
      network_.RunFor(10 * kNsPerMs);
    }
    figures.connected_ms = static_cast<double>(now_ns() - begin_ns) / 1e6;
    std::vector<uint32_t> clients(options_.servers);
    for (const auto& client : clients_) {
      for (const ServerFacts& facts : ServersOf(client->channel())) ++clients[NumberOf(facts)];
    }
    const auto [fewest, most] = std::minmax_element(clients.begin(), clients.end());
    figures.fewest_clients = *fewest;
    figures.most_clients = *most;
    return absl::OkStatus();
  }

  static size_t NumberOf(const ServerFacts& facts) {
    return std::stoul(facts.server.address.substr(sizeof("sim:s") - 1));
  }

  // `part`: of phase_ns().
  template <class Event>
  FleetPhase RunPhase(double part, Event&& event) {
    for (const auto& server : servers_) server->calls = 0;
    FleetPhase before;
    Count(before);
    const auto length_ns = static_cast<uint64_t>(part * static_cast<double>(phase_ns()));
    const uint64_t end_ns = now_ns() + length_ns;
    event();
    if (now_ns() < end_ns) network_.RunFor(end_ns - now_ns());
    FleetPhase phase;
    Count(phase);
    phase.failed -= before.failed;
    phase.retries -= before.retries;
    phase.moved -= before.moved;
    phase.load = LoadNow();
    return phase;
  }

  void Count(FleetPhase& phase) {
    for (const auto& client : clients_) {
      phase.failed += client->failed;
      phase.moved += client->moved;
      phase.retries += client->channel().stats().retries;
    }
  }

  FleetLoad LoadNow() {
    FleetLoad load;
    std::vector<uint64_t> calls;
    for (const auto& server : servers_) {
      if (!server->dead && !server->hangs && !server->left) calls.push_back(server->calls);
    }
    const auto count = static_cast<double>(calls.size());
    for (const uint64_t one : calls) load.calls += one;
    const auto [least, most] = std::minmax_element(calls.begin(), calls.end());
    load.least = *least;
    load.most = *most;
    load.mean = static_cast<double>(load.calls) / count;
    double squares = 0;
    for (const uint64_t one : calls) {
      squares += (static_cast<double>(one) - load.mean) * (static_cast<double>(one) - load.mean);
    }
    load.deviation = std::sqrt(squares / count) / load.mean;
    load.deviation_of_chance = 1 / std::sqrt(load.mean);
    return load;
  }

  // Until no client has a server of which `is_there` is true, or for phase_ns().
  template <class IsThere>
  double MsUntilNone(IsThere&& is_there) {
    const uint64_t begin_ns = now_ns();
    const auto some = [&] {
      return std::any_of(clients_.begin(), clients_.end(), [&](const auto& client) {
        const std::vector<ServerFacts> facts = ServersOf(client->channel());
        return std::any_of(facts.begin(), facts.end(), is_there);
      });
    };
    while (some() && now_ns() - begin_ns < phase_ns()) network_.RunFor(kNsPerMs);
    return static_cast<double>(now_ns() - begin_ns) / 1e6;
  }

  void KillSome(FleetFigures& figures) {
    for (uint32_t i = 0; i < options_.killed; ++i) {
      servers_[i]->dead = true;
      network_.Kill(StrCat("victim-", i));
    }
    figures.last_client_knew_ms = MsUntilNone([this](const ServerFacts& facts) {
      return facts.state == ChannelState::kReady && NumberOf(facts) < options_.killed;
    });
  }

  void HangSome(FleetFigures& figures) {
    const auto calls = [this] {
      uint64_t sum = 0;
      for (const auto& server : servers_) sum += server->hangs ? server->calls : 0;
      return static_cast<double>(sum);
    };
    for (uint32_t i = 0; i < options_.hung; ++i) servers_[options_.killed + i]->hangs = true;
    if (options_.hung == 0) return;
    network_.RunFor(kNsPerSec);
    figures.hung_calls_first_s = calls() / options_.hung;
    if (phase_ns() > 2 * kNsPerSec) network_.RunFor(phase_ns() - 2 * kNsPerSec);
    const double before = calls();
    network_.RunFor(kNsPerSec);
    figures.hung_calls_last_s = (calls() - before) / options_.hung;
  }

  // Whatever was sent to hung servers has its end before the next phase.
  void EndHang() {
    for (const auto& server : servers_) {
      if (server->hangs) server->Recover();
    }
    network_.RunFor(2 * options_.timeout_us * kNsPerUs);
  }

  void DrainSome(FleetFigures& figures) {
    const uint32_t first = options_.killed + options_.hung;
    const auto leaves = [&](size_t number) {
      return number >= first && number < first + options_.drained;
    };
    std::vector<ListedServer> left;
    for (size_t i = 0; i < addresses_.size(); ++i) {
      servers_[i]->left = leaves(i);
      if (!leaves(i)) left.push_back(addresses_[i]);
    }
    const absl::Status named = Name(left);
    WEFT_CHECK(named.ok());  // User: the list was good enough before, and the file was written
    figures.last_drained_ms =
        MsUntilNone([&](const ServerFacts& facts) { return leaves(NumberOf(facts)); });
  }

  uint32_t first_restarted() const { return options_.killed + options_.hung + options_.drained; }

  // The list has them all the time. Each begins when a call runs there, if one does within a
  // second. Shutdown() lets the network go on until it is over.
  void RestartSome(FleetFigures& figures) {
    for (uint32_t i = 0; i < options_.restarted; ++i) {
      FleetServer& server = *servers_[first_restarted() + i];
      const uint64_t patience_end_ns = now_ns() + kNsPerSec;
      while (!server.is_busy() && now_ns() < patience_end_ns) network_.RunFor(kNsPerMs / 4);
      const uint64_t begin_ns = now_ns();
      const absl::Status again = server.Restart(figures);
      WEFT_CHECK(again.ok());  // Ours: it has served at that address before
      figures.longest_shutdown_ms =
          std::max(figures.longest_shutdown_ms, static_cast<double>(now_ns() - begin_ns) / 1e6);
    }
  }

  uint64_t FewestCallsAgain() const {
    uint64_t fewest = options_.restarted == 0 ? 0 : ~uint64_t{0};
    for (uint32_t i = 0; i < options_.restarted; ++i) {
      fewest = std::min(fewest, servers_[first_restarted() + i]->calls_again());
    }
    return fewest;
  }

  const FleetOptions options_;
  ServerFile file_;  // FleetNaming::kFile
  SimNetwork network_;
  Random random_;
  std::vector<uint64_t> keys_;  // none: the policy is another one. Outlives the clients
  std::vector<std::unique_ptr<FleetServer>> servers_;
  std::vector<ListedServer> addresses_;
  std::vector<std::unique_ptr<FleetClient>> clients_;
};

absl::Status Check(const FleetOptions& options) {
  const auto bounded = [](const char* name, double value, double least, double most) {
    if (value >= least && value <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("--%s is %g; %g to %g are possible", name, value, least, most));
  };
  WEFT_RETURN_IF_ERROR(bounded("servers", options.servers, 2, kMaxServersListed));
  WEFT_RETURN_IF_ERROR(bounded("clients", options.clients, 1, 1'000'000));
  WEFT_RETURN_IF_ERROR(bounded("part", options.part, 1, kMaxServers));
  WEFT_RETURN_IF_ERROR(bounded("calls_per_s", options.calls_per_s, 0.001, 10'000));
  WEFT_RETURN_IF_ERROR(bounded("seconds", options.seconds, 2, 3600));
  WEFT_RETURN_IF_ERROR(bounded("machines", options.machines, 1, 1000));
  WEFT_RETURN_IF_ERROR(bounded("keys", options.keys, 1, 100'000));
  // As doubles, whose sum does not overflow.
  return bounded("killed + hung + drained + restarted",
                 double{0} + options.killed + options.hung + options.drained + options.restarted, 0,
                 options.servers - 1);
}

std::string PhaseText(const char* name, const FleetPhase& phase) {
  const FleetLoad& load = phase.load;
  return absl::StrFormat(
      "%-10s %9d calls, %d failed, %d retries; of a server that is well: %d to %d calls, mean "
      "%.1f, deviation %.1f %% (by chance: %.1f %%)\n",
      name, load.calls, phase.failed, phase.retries, load.least, load.most, load.mean,
      100 * load.deviation, 100 * load.deviation_of_chance);
}

// With consistent hash alone.
std::string MovedText(const FleetOptions& options, const FleetFigures& figures) {
  if (options.policy != BalancingPolicy::kConsistentHash) return "";
  return absl::StrFormat(
      "moved      %d keys; calls that another server of the client's has answered than the last "
      "one with their key: %d steady, %d killed, %d hung, %d drained, %d restarted\n",
      options.keys, figures.steady.moved, figures.killed.moved, figures.hung.moved,
      figures.drained.moved, figures.restarted.moved);
}

}  // namespace

absl::StatusOr<FleetFigures> RunFleet(const FleetOptions& options) {
  WEFT_RETURN_IF_ERROR(Check(options));
  return Fleet(options).Run();
}

std::string FleetText(const FleetOptions& options, const FleetFigures& figures) {
  return absl::StrFormat(
             "%d servers, %d clients with %d of them each, seed %d\n"
             "connected  %d connections in %.0f ms of virtual time; a server has %d to %d "
             "clients\n",
             options.servers, options.clients, options.part, options.seed, figures.connections,
             figures.connected_ms, figures.fewest_clients, figures.most_clients) +
         PhaseText("steady", figures.steady) + PhaseText("killed", figures.killed) +
         absl::StrFormat("           %d servers died; after %.0f ms no client chose one any more\n",
                         options.killed, figures.last_client_knew_ms) +
         PhaseText("hung", figures.hung) +
         absl::StrFormat(
             "           %d servers hang; each got %.1f calls in the first second, and %.1f in "
             "the last; %d ejections\n",
             options.hung, figures.hung_calls_first_s, figures.hung_calls_last_s,
             figures.ejections) +
         PhaseText("drained", figures.drained) +
         absl::StrFormat(
             "           %d servers left the list; the last connection ended after %.0f ms\n",
             options.drained, figures.last_drained_ms) +
         PhaseText("restarted", figures.restarted) +
         absl::StrFormat(
             "           %d servers shut down in turn, each within %.0f ms: %d calls ran there, of "
             "which %d were cut, and %d that came were refused as not run; serving again, each had "
             "%d or more\n",
             options.restarted, figures.longest_shutdown_ms, figures.running_at_shutdown,
             figures.cut_by_shutdown, figures.refused_by_shutdown, figures.fewest_calls_again) +
         MovedText(options, figures) + absl::StrFormat("trace      %016x\n", figures.trace_hash);
}

}  // namespace weft::bench
