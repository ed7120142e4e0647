// A service tested as Weft tests itself: on a simulated network, in one thread, with faults, on a
// virtual clock. `sim SEED` runs one history; the same seed gives the same history, event by event.
//
// A client adds to a counter while its server is cut off, slowed down and killed. Whatever happens,
// each addition must count exactly once, so a client that retries must know when it may: the status
// of a call says so.
#include "weft/sim.h"

#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "examples/sim/counter.weft.h"
#include "weft/channel.h"
#include "weft/server.h"
#include "weft/status.h"

namespace {

constexpr int kAdditions = 200;

// What survives the server's process: a disk, in a program that has one.
struct Disk {
  std::set<std::string> seen;
  int64_t total = 0;
};

class CounterService final : public counter::Counter::Service {
 public:
  explicit CounterService(Disk& disk) : disk_(disk) {}

  absl::Status Add(weft::ServerContext&, const counter::AddRequest& request,
                   counter::AddReply* reply) override {
    if (disk_.seen.insert(request.id()).second) disk_.total += request.amount();
    reply->set_total(disk_.total);
    return absl::OkStatus();
  }

 private:
  Disk& disk_;
};

// A machine that serves the counter at "sim:counter" until it is killed.
struct Machine {
  Machine(weft::SimNetwork& network, const std::string& node, Disk& disk) : service(disk) {
    server = *weft::Server::Create(network.Node(node));
    if (!server->AddService(&service).ok() || !server->Listen("sim:counter").ok()) std::abort();
  }

  CounterService service;
  std::unique_ptr<weft::Server> server;
};

struct Outcome {
  int64_t total = 0;
  int not_sent = 0;      // calls that were safe to send again, whatever they ask for
  int may_have_run = 0;  // calls that were sent again because each has an id
};

// Something bad, perhaps.
void Disturb(weft::SimNetwork& network, std::mt19937_64& random) {
  switch (random() % 8) {
    case 0:
      network.Partition("client", "server");
      break;
    case 1:
      network.Heal("client", "server");
      break;
    case 2:
      network.SlowDown("server", random() % 5'000'000);
      break;
    default:
      break;
  }
}

// Adds once, and goes on until it has.
absl::Status AddForCertain(weft::SimNetwork& network, counter::Counter::Stub& stub,
                           const counter::AddRequest& request, Outcome* outcome) {
  counter::AddReply reply;
  absl::Status status;
  for (int tries = 0; tries < 100; ++tries) {
    status = stub.Add(request, &reply, {.timeout_us = 50'000});
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
    switch (weft::DeliveryOf(status)) {
      case weft::Delivery::kNotSent:
        ++outcome->not_sent;
        break;
      case weft::Delivery::kMayHaveRun:
        ++outcome->may_have_run;
        break;
      case weft::Delivery::kUnknown:
        break;
    }
    network.Heal("client", "server");
    network.RunFor(100'000'000);  // virtual: no test waits for it
  }
  return status;
}

absl::StatusOr<Outcome> Run(uint64_t seed) {
  std::mt19937_64 random(seed);
  weft::SimNetwork network(seed);
  Disk disk;
  Machine machine(network, "server", disk);
  auto channel = weft::Channel::Open(network.Node("client"), "sim:counter");
  if (!channel.ok()) return channel.status();
  counter::Counter::Stub stub(**channel);

  Outcome outcome;
  counter::AddRequest request;
  for (int i = 0; i < kAdditions; ++i) {
    Disturb(network, random);
    request.set_id(std::to_string(i));
    request.set_amount(1);
    absl::Status added = AddForCertain(network, stub, request, &outcome);
    if (!added.ok()) return added;
  }
  network.CheckInvariants();
  outcome.total = disk.total;

  // A dead machine answers nobody, and takes nothing with it that a client was told is done.
  network.Kill("server");
  counter::AddReply reply;
  const absl::Status gone = stub.Add(request, &reply, {.timeout_us = 5'000'000});
  if (gone.ok() || disk.total != outcome.total)
    return absl::InternalError("the dead have answered");

  // The next one has its disk, and its address; the channel finds it.
  Machine restarted(network, "server, restarted", disk);
  request.set_id("after the restart");
  request.set_amount(0);
  const absl::Status back =
      stub.Add(request, &reply, {.timeout_us = 60'000'000, .wait_for_server = true});
  if (!back.ok()) return back;
  if (reply.total() != outcome.total) return absl::InternalError("additions were lost");
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const auto outcome = Run(seed);
  if (!outcome.ok()) {
    std::cerr << "seed " << seed << ": " << outcome.status() << "\n";
    return 1;
  }
  std::cout << "seed " << seed << ": " << kAdditions << " additions, total " << outcome->total
            << ", not sent " << outcome->not_sent << ", may have run " << outcome->may_have_run
            << "\n";
  return outcome->total == kAdditions ? 0 : 1;
}
