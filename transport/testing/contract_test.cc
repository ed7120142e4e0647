#include "transport/testing/contract_test.h"

#include <ostream>

#include "core/clock.h"

namespace weft {

void PrintTo(const ContractWorld::Resources& resources, std::ostream* out) {
  *out << resources.registrations << " registrations, " << resources.send_slots << " send slots, "
       << resources.receives << " receives, " << resources.links << " links, "
       << resources.descriptors << " descriptors, " << resources.threads << " threads, "
       << resources.shm_files << " shm files";
}

namespace {

// On a machine that is busy, or stands still for seconds, the default limits are short. No test of
// the contract is about them.
template <class Options>
Options Patient(Options options, ContractWorld& world) {
  options.security = world.security();
  options.link.connect_timeout_ns = 50 * kNsPerSec;
  options.link.path_timeout_ns = 25 * kNsPerSec;
  return options;
}

}  // namespace

// --- the fixture --------------------------------------------------------------------------------

ContractTest::~ContractTest() {
  // Listeners end before their engines; connections end with them, before their handlers.
  listener_.reset();
  world_.reset();
}

void ContractTest::Listen(const ListenOptions& options) {
  if (listener_ != nullptr) return;
  auto listener = world_->server().transport().Listen(world_->NewAddress(),
                                                      Patient(options, *world_), &acceptor_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  listener_ = *std::move(listener);
}

void ContractTest::Connect(Endpoint& endpoint, const ConnectOptions& options) {
  auto connection = world_->client().transport().Connect(listener_->address(),
                                                         Patient(options, *world_), &endpoint);
  ASSERT_TRUE(connection.ok()) << connection.status();
  endpoint.set_connection(*connection);
}

void ContractTest::Open(const ConnectOptions& connect, const ListenOptions& listen) {
  Listen(listen);
  Connect(client_, connect);
  ASSERT_TRUE(Run([&] {
    return client_.closed() ||
           (client_.opened() && !acceptor_.endpoints.empty() && server_end().opened());
  }));
  ASSERT_FALSE(client_.closed()) << client_.why();
}

void ContractTest::CloseClient() {
  client_.connection().Close("done");
  EXPECT_TRUE(Run([&] { return client_.closed() && server_end().closed(); }));
}

}  // namespace weft
