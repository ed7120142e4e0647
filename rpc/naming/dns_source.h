// The servers that the DNS names: the A and AAAA records of a host, or the SRV records of a service
// and the addresses of their hosts. c-ares asks, over sockets that the engine's Poller watches,
// with time-outs that are the engine's timers: no thread, and nothing blocks but reading
// /etc/resolv.conf and /etc/hosts, which c-ares does by itself.
//
//   state   what there is                  what ends it
//   idle    a timer until the next look-up the timer; Refresh(), once in kLeastPauseUs -> asking
//   asking  one question, or one for each  all have answers, or none in time -> idle
//           host of an SRV answer
//
// Threads, lifetime: AddressSource's; on an engine of the real clock.
// Errors: the name has no such records; no name server answers; none of the hosts of an SRV answer
//   has an address. A host that could not be asked about keeps the addresses that it had. After an
//   error /etc/resolv.conf is read again with the next look-up.
// Invariants: what a name server says is checked by c-ares; an address is made of numbers here,
//   never of a text that came. At most kMaxHosts of an SRV answer, and kMaxServersListed addresses,
//   are taken.
#pragma once

#include <ares.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rpc/client/address_source.h"
#include "rpc/operation/member_timer.h"
#include "transport/engine.h"
#include "transport/poller.h"

namespace weft {

// "HOST:PORT", "_SERVICE._PROTOCOL.NAME", or either behind "//SERVER/": a name server, with a port
// behind its address if it is not 53.
absl::StatusOr<std::unique_ptr<AddressSource>> MakeDnsSource(std::string_view name);

class DnsSource final : public AddressSource {
 public:
  // A server that is lost is asked about at once, but a name server not more often than this.
  static constexpr uint64_t kLeastPauseUs = 1'000'000;
  // Of one SRV answer: each is a question of its own. As many fit into a message of 64 KiB.
  static constexpr uint32_t kMaxHosts = 1024;

  // `port` 0: the name is one of SRV records. `name_server` "": those of /etc/resolv.conf.
  DnsSource(std::string name, uint16_t port, std::string name_server)
      : name_(std::move(name)), port_(port), name_server_(std::move(name_server)) {}
  ~DnsSource() override;

  void Start(EngineCore& engine, Host* host, uint64_t refresh_us) override;
  void Refresh() override;

 private:
  // One of c-ares' sockets.
  struct Socket final : PollHandler {
    void OnReady(uint32_t events) override { source->OnReady(number, events); }
    DnsSource* source = nullptr;
    ares_socket_t number = ARES_SOCKET_BAD;
    bool closed = false;
  };
  // What was asked about one host.
  struct Question {
    DnsSource* source;
    std::string host;
    uint16_t port;
    uint32_t priority;
  };
  // What was answered about one host last.
  struct Known {
    std::vector<std::string> addresses;
    uint64_t look_up = 0;  // the last one that has asked about it
  };

  // c-ares' callbacks.
  static void OnSocketState(void* source, ares_socket_t number, int readable, int writable);
  static void OnServices(void* source, int status, int timeouts, unsigned char* answer, int bytes);
  static void OnAddresses(void* question, int status, int timeouts, ares_addrinfo* result);

  void LookUp();
  void OnReady(ares_socket_t number, uint32_t events);
  void OnTimeout();
  absl::Status OpenResolver();
  void CloseResolver();
  void Ask(const char* host, uint16_t port, uint32_t priority);
  void TakeServices(const unsigned char* answer, int bytes);
  void ScheduleTimeout();
  void OnAnswered();
  void End();

  const std::string name_;
  const uint16_t port_;
  const std::string name_server_;

  EngineCore* engine_ = nullptr;
  AddressSource::Host* host_ = nullptr;
  uint64_t refresh_us_ = 0;
  ares_channel resolver_ = nullptr;  // null: it is to be opened
  std::vector<std::unique_ptr<Socket>> sockets_;
  uint32_t asking_ = 0;  // questions without an answer
  std::vector<std::unique_ptr<Question>> questions_;
  std::vector<ListedServer> found_;
  uint64_t look_ups_ = 0;
  std::map<std::string, Known> known_;  // by "host:port"; of the hosts of the last SRV answer
  absl::Status failure_;                // of the last question that has failed
  uint64_t asked_ns_ = 0;
  MemberTimer<&DnsSource::LookUp> next_{*this};
  MemberTimer<&DnsSource::OnTimeout> timeout_{*this};
};

}  // namespace weft
