#include "bench/fleet/fleet.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/fleet/fleet_client.h"
#include "bench/fleet/fleet_server.h"
#include "core/check.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/channel.h"
#include "transport/engine.h"
#include "transport/sim/sim_network.h"

namespace weft::bench {
namespace {

using Conduct = FleetServer::Conduct;

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

// Servers to which the same happens, by their numbers.
struct Group {
  uint32_t first;
  uint32_t count;
  bool Has(size_t number) const { return number >= first && number - first < count; }
  Group Behind(uint32_t next) const { return {first + count, next}; }
};

class Fleet {
 public:
  explicit Fleet(const FleetOptions& options)
      : options_(options),
        network_(options.seed, {.lifeline_timeout_ns = options.peer_timeout_us * kNsPerUs,
                                .slot_bytes = kFleetSlotBytes}),
        random_(options.seed),
        killed_{0, options.killed},
        vanished_(killed_.Behind(options.vanished)),
        failing_(vanished_.Behind(options.failing)),
        hung_(failing_.Behind(options.hung)),
        drained_(hung_.Behind(options.drained)),
        restarted_(drained_.Behind(options.restarted)) {}
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
    figures.vanished = RunPhase(1, [&] { VanishSome(figures); });
    SetRates(options_.busy_calls_per_s);
    figures.failing = RunPhase(1, [&] { Trouble(failing_, Conduct::kFails, figures.of_failing); });
    EndTrouble(failing_);
    figures.hung = RunPhase(1, [&] { Trouble(hung_, Conduct::kHangs, figures.of_hung); });
    SetRates(options_.calls_per_s);
    EndTrouble(hung_);
    figures.drained = RunPhase(0.5, [&] { DrainSome(figures); });
    figures.restarted = RunPhase(0.5, [&] { RestartSome(figures); });
    CountRestarts(figures);
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
    const FleetWork work = {.service_us = options_.service_us, .outstanding = options_.outstanding};
    for (uint32_t i = 0; i < options_.servers; ++i) {
      EngineCore& engine = killed_.Has(i) || vanished_.Has(i)
                               ? Machine("victim", i)
                               : Machine("servers", i % options_.machines);
      servers_.push_back(std::make_unique<FleetServer>(engine, i, work, random_.Next64()));
      WEFT_RETURN_IF_ERROR(servers_.back()->Start());
      addresses_.push_back({servers_.back()->address()});
    }
    if (options_.policy == BalancingPolicy::kConsistentHash) {
      for (uint32_t i = 0; i < options_.keys; ++i) keys_.push_back(ServerKeyOf(StrCat("key ", i)));
    }
    BalancingOptions balancing;
    balancing.policy = options_.policy;
    balancing.max_servers = options_.part;
    balancing.refresh_us = kFleetRefreshUs;
    if (!options_.ejection) balancing.ejection.max_percent = 0;
    std::string target = "list:";
    if (options_.naming == FleetNaming::kFile) {
      WEFT_RETURN_IF_ERROR(file_.Open());
      target = StrCat("file:", file_.path());
    }
    for (uint32_t i = 0; i < options_.clients; ++i) {
      balancing.client_number = i;
      clients_.push_back(std::make_unique<FleetClient>(Machine("clients", i % options_.machines),
                                                       options_.calls_per_s, options_.timeout_us,
                                                       random_.Next64()));
      if (!keys_.empty()) clients_.back()->UseKeys(keys_);
      WEFT_RETURN_IF_ERROR(
          clients_.back()->Open(target, FleetChannelOptions(options_.outstanding), balancing));
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
    for (const auto& server : servers_) server->ResetLoad();
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
      phase.failed += client->failed();
      phase.moved += client->moved();
      phase.retries += client->channel().stats().retries;
    }
  }

  FleetLoad LoadNow() {
    FleetLoad load;
    std::vector<uint64_t> calls;
    for (size_t i = first_well_; i < servers_.size(); ++i) calls.push_back(servers_[i]->calls());
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

  // No client's channel chooses one of them: for so long they are called.
  double MsUntilNoneIsChosen(const Group& servers) {
    return MsUntilNone([&](const ServerFacts& facts) {
      return facts.state == ChannelState::kReady && servers.Has(NumberOf(facts));
    });
  }

  // Something is about to happen to them: they are well no more. What has happened to others
  // before may tell for longer, as where they are ejected.
  void NoLongerWell(const Group& servers) { first_well_ = servers.first + servers.count; }

  void KillSome(FleetFigures& figures) {
    NoLongerWell(killed_);
    for (uint32_t i = 0; i < killed_.count; ++i) {
      network_.Kill(StrCat("victim-", killed_.first + i));
    }
    figures.last_client_knew_ms = MsUntilNoneIsChosen(killed_);
  }

  void VanishSome(FleetFigures& figures) {
    NoLongerWell(vanished_);
    for (uint32_t i = 0; i < vanished_.count; ++i) {
      for (uint32_t machine = 0; machine < std::min(options_.machines, options_.clients);
           ++machine) {
        network_.Partition(StrCat("victim-", vanished_.first + i), StrCat("clients-", machine));
      }
    }
    figures.last_client_gave_up_ms = MsUntilNoneIsChosen(vanished_);
  }

  void SetRates(double calls_per_s) {
    for (const auto& client : clients_) client->SetRate(calls_per_s);
  }

  uint64_t Ejections() {
    uint64_t ejections = 0;
    for (const auto& client : clients_) {
      for (const ServerFacts& facts : ServersOf(client->channel())) ejections += facts.ejections;
    }
    return ejections;
  }

  void Trouble(const Group& servers, Conduct conduct, FleetTrouble& figures) {
    NoLongerWell(servers);
    if (servers.count == 0) return;
    const auto calls = [&] {
      uint64_t sum = 0;
      for (uint32_t i = 0; i < servers.count; ++i) sum += servers_[servers.first + i]->calls();
      return static_cast<double>(sum) / servers.count;
    };
    const uint64_t ejections_before = Ejections();
    for (uint32_t i = 0; i < servers.count; ++i) servers_[servers.first + i]->Conducts(conduct);
    network_.RunFor(kNsPerSec);
    figures.calls_first_s = calls();
    if (phase_ns() > 2 * kNsPerSec) network_.RunFor(phase_ns() - 2 * kNsPerSec);
    const double before = calls();
    network_.RunFor(kNsPerSec);
    figures.calls_last_s = calls() - before;
    figures.ejections = Ejections() - ejections_before;
  }

  // Whatever was sent to them has its end before the next phase.
  void EndTrouble(const Group& servers) {
    for (uint32_t i = 0; i < servers.count; ++i) {
      servers_[servers.first + i]->Conducts(Conduct::kAnswers);
    }
    network_.RunFor(2 * options_.timeout_us * kNsPerUs);
  }

  void DrainSome(FleetFigures& figures) {
    NoLongerWell(drained_);
    std::vector<ListedServer> left;
    for (size_t i = 0; i < addresses_.size(); ++i) {
      if (!drained_.Has(i)) left.push_back(addresses_[i]);
    }
    const absl::Status named = Name(left);
    WEFT_CHECK(named.ok());  // User: the list was good enough before, and the file was written
    figures.last_drained_ms =
        MsUntilNone([&](const ServerFacts& facts) { return drained_.Has(NumberOf(facts)); });
  }

  // The list has them all the time, and they count as well. Each begins when a call runs there, if
  // one does within a second. Shutdown() lets the network go on until it is over.
  void RestartSome(FleetFigures& figures) {
    for (uint32_t i = 0; i < restarted_.count; ++i) {
      FleetServer& server = *servers_[restarted_.first + i];
      const uint64_t patience_end_ns = now_ns() + kNsPerSec;
      while (!server.is_busy() && now_ns() < patience_end_ns) network_.RunFor(kNsPerMs / 4);
      const uint64_t begin_ns = now_ns();
      const absl::Status again = server.Restart();
      WEFT_CHECK(again.ok());  // Ours: it has served at that address before
      figures.longest_shutdown_ms =
          std::max(figures.longest_shutdown_ms, static_cast<double>(now_ns() - begin_ns) / 1e6);
    }
  }

  void CountRestarts(FleetFigures& figures) const {
    figures.fewest_calls_again = restarted_.count == 0 ? 0 : ~uint64_t{0};
    for (uint32_t i = 0; i < restarted_.count; ++i) {
      const FleetServer& server = *servers_[restarted_.first + i];
      figures.running_at_shutdown += server.running_at_shutdown();
      figures.refused_by_shutdown += server.refused_by_shutdown();
      figures.cut_by_shutdown += server.cut_by_shutdown();
      figures.fewest_calls_again = std::min(figures.fewest_calls_again, server.calls_again());
    }
  }

  const FleetOptions options_;
  ServerFile file_;  // FleetNaming::kFile
  SimNetwork network_;
  Random random_;
  // In this order, one behind the other.
  const Group killed_;
  const Group vanished_;
  const Group failing_;
  const Group hung_;
  const Group drained_;
  const Group restarted_;
  uint32_t first_well_ = 0;     // nothing has happened to that and those behind it
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
  WEFT_RETURN_IF_ERROR(bounded("busy_calls_per_s", options.busy_calls_per_s, 0.001, 10'000));
  WEFT_RETURN_IF_ERROR(bounded("outstanding", options.outstanding, 1, 4096));
  WEFT_RETURN_IF_ERROR(
      bounded("peer_timeout_us", static_cast<double>(options.peer_timeout_us), 1000, 3600e6));
  WEFT_RETURN_IF_ERROR(bounded("seconds", options.seconds, 2, 3600));
  WEFT_RETURN_IF_ERROR(bounded("machines", options.machines, 1, 1000));
  WEFT_RETURN_IF_ERROR(bounded("keys", options.keys, 1, 100'000));
  // As doubles, whose sum does not overflow.
  return bounded("killed + vanished + failing + hung + drained + restarted",
                 double{0} + options.killed + options.vanished + options.failing + options.hung +
                     options.drained + options.restarted,
                 0, options.servers - 1);
}

std::string PhaseText(const char* name, const FleetPhase& phase) {
  const FleetLoad& load = phase.load;
  return absl::StrFormat(
      "%-10s %9d calls, %d failed, %d retries; of a server that is well: %d to %d calls, mean "
      "%.1f, deviation %.1f %% (by chance: %.1f %%)\n",
      name, load.calls, phase.failed, phase.retries, load.least, load.most, load.mean,
      100 * load.deviation, 100 * load.deviation_of_chance);
}

std::string TroubleText(uint32_t servers, const char* what, const FleetTrouble& trouble) {
  return absl::StrFormat(
      "           %d servers %s; each got %.1f calls in the first second, and %.1f in the last; "
      "%d ejections\n",
      servers, what, trouble.calls_first_s, trouble.calls_last_s, trouble.ejections);
}

// With consistent hash alone.
std::string MovedText(const FleetOptions& options, const FleetFigures& figures) {
  if (options.policy != BalancingPolicy::kConsistentHash) return "";
  return absl::StrFormat(
      "moved      %d keys; calls that another server of the client's has answered than the last "
      "one with their key: %d steady, %d killed, %d vanished, %d failing, %d hung, %d drained, %d "
      "restarted\n",
      options.keys, figures.steady.moved, figures.killed.moved, figures.vanished.moved,
      figures.failing.moved, figures.hung.moved, figures.drained.moved, figures.restarted.moved);
}

}  // namespace

absl::StatusOr<FleetFigures> RunFleet(const FleetOptions& options) {
  WEFT_RETURN_IF_ERROR(Check(options));
  return Fleet(options).Run();
}

std::string FleetText(const FleetOptions& options, const FleetFigures& figures) {
  return absl::StrFormat(
             "%d servers, %d clients with %d of them each, ejection %s, seed %d\n"
             "connected  %d connections in %.0f ms of virtual time; a server has %d to %d "
             "clients\n",
             options.servers, options.clients, options.part, options.ejection ? "on" : "off",
             options.seed, figures.connections, figures.connected_ms, figures.fewest_clients,
             figures.most_clients) +
         PhaseText("steady", figures.steady) + PhaseText("killed", figures.killed) +
         absl::StrFormat("           %d servers died; after %.0f ms no client chose one any more\n",
                         options.killed, figures.last_client_knew_ms) +
         PhaseText("vanished", figures.vanished) +
         absl::StrFormat(
             "           %d servers' hosts were cut off; after %.0f ms no client chose one any "
             "more\n",
             options.vanished, figures.last_client_gave_up_ms) +
         PhaseText("failing", figures.failing) +
         TroubleText(options.failing, "answer with errors", figures.of_failing) +
         PhaseText("hung", figures.hung) + TroubleText(options.hung, "hang", figures.of_hung) +
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
