// What a source of servers has said, for its tests.
//
// Threads: the test's.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "rpc/client/address_source.h"

namespace weft::test {

class Heard final : public AddressSource::Host {
 public:
  void OnServers(std::vector<ListedServer> named) override {
    servers = std::move(named);
    ++times;
  }
  void OnSourceFailed(const absl::Status& why) override {
    failure = why;
    ++failures;
  }
  std::vector<std::string> addresses() const {
    std::vector<std::string> all;
    for (const ListedServer& server : servers) all.push_back(server.address);
    return all;
  }

  std::vector<ListedServer> servers;
  int times = 0;
  absl::Status failure;
  int failures = 0;
};

}  // namespace weft::test
