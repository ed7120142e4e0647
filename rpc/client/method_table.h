// Which number a server gives to each method that this client can call.
//
// Stubs bind their services to a channel once; the server's numbers are known when a connection
// opens, and looked up at the first call of a method on it. From then on a call costs one array
// access.
//
// A form of a method, with messages of fixed layout (method_layouts.h), has a number of its own. A
// server that has no form with the same layouts has one for one direction, or the method: calls
// then come to Resolve() each time, and convert.
//
// Threads: Bind() from any; the rest on the engine's thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "rpc/wire/hello.pb.h"
#include "rpc/wire/service.h"

namespace weft {

// What stubs have bound: the channel's numbers of methods, whatever server they are called at.
// Threads: any. Find() is on the way of calls with interceptors or retries: it takes no lock.
class BoundServices {
 public:
  // Methods and forms of all bound services; stubs beyond fail their calls with RESOURCE_EXHAUSTED.
  static constexpr uint32_t kMaxMethods = 2048;

  // The number of the service's first method; its forms follow its methods. Always the same.
  uint32_t Bind(const ServiceDescriptor& service);

  struct Found {
    const ServiceDescriptor* service = nullptr;  // null: it could not be bound
    const MethodDescriptor* method = nullptr;
  };
  Found Find(uint32_t method) const;

 private:
  // Constant once it is the newest.
  struct Bound {
    uint32_t first;
    const ServiceDescriptor* service;
    const Bound* before;  // with the numbers below; null: none
  };

  std::mutex mutex_;  // of those who bind
  // Guarded by mutex_. What is there stays where it is.
  std::deque<Bound> bound_;
  uint32_t next_ = 0;
  std::atomic<const Bound*> newest_{nullptr};
};

class MethodTable {
 public:
  static constexpr uint16_t kUnknown = 0xFFFF;

  // What a call of a method or form is sent as.
  struct Agreed {
    uint16_t number = kUnknown;
    bool as_wanted = true;  // false: `request_fixed`, `reply_fixed` are not all that was bound
    bool request_fixed = false;
    bool reply_fixed = false;
  };

  static constexpr uint32_t kMaxMethods = BoundServices::kMaxMethods;

  // `bound`: those of another table, of the same channel. Null: its own.
  explicit MethodTable(std::shared_ptr<BoundServices> bound = nullptr)
      : bound_(bound != nullptr ? std::move(bound) : std::make_shared<BoundServices>()) {
    Forget();
  }

  const std::shared_ptr<BoundServices>& bound() const { return bound_; }
  // As if constructed so. REQUIRES: what both have bound until now, both have bound alike.
  void Share(const std::shared_ptr<BoundServices>& bound) { bound_ = bound; }

  // The channel's number of the service's first method; its forms follow its methods.
  uint32_t Bind(const ServiceDescriptor& service) { return bound_->Bind(service); }

  struct Name {
    std::string_view service;  // "weft.examples.kv.Kv"
    std::string_view method;   // "Get"
  };
  // Of the channel's method or form `method`; empty for one that could not be bound. Any thread.
  Name NameOf(uint32_t method);

  // It may run twice for one call. Any thread.
  bool IsIdempotent(uint32_t method);

  // A connection opened: the server's table. False: more methods than 16 bits can number.
  [[nodiscard]] bool Learn(const rpc::ServerHello& hello);

  // Numbers of a connection that is no more.
  void Forget() {
    first_numbers_.fill(kUnknown);
    further_numbers_.clear();
    converted_.clear();
  }

  // The server's number of the channel's method `method`, or kUnknown.
  uint16_t Find(uint32_t method) const {
    if (method < kFirstMethods) [[likely]]
      return first_numbers_[method];
    const size_t at = method - kFirstMethods;
    return at < further_numbers_.size() ? further_numbers_[at] : kUnknown;
  }

  // For a method that Find() does not know: looks it up. UNIMPLEMENTED names what the server lacks,
  // or says that it takes one-way messages where the caller wants a reply, or the other way round.
  absl::StatusOr<Agreed> Resolve(uint32_t method, const std::string& address);

 private:
  struct Served {
    uint16_t first;
    std::vector<std::string> methods;
    std::vector<uint32_t> one_way;  // of them
  };
  struct ServedForm {
    uint32_t method;
    uint64_t request_layout;
    uint64_t reply_layout;
  };

  // Numbers that stand in the table itself: a cache line of them, beside what else a call touches.
  // Most channels have fewer methods. Room for all would be 4 KiB of each connection.
  static constexpr uint32_t kFirstMethods = 32;

  void SetNumber(uint32_t method, uint16_t number);
  std::string ServerText(const std::string& address) const;
  Agreed BestForm(const MethodLayouts& wanted, uint16_t method) const;
  void LogConversions(const MethodLayouts& wanted, const Agreed& agreed, const std::string& method,
                      uint16_t number, const std::string& address) const;

  // Engine thread only.
  std::array<uint16_t, kFirstMethods> first_numbers_;
  std::vector<uint16_t> further_numbers_;  // up to the last method that was called
  std::string server_name_;
  std::unordered_map<std::string, Served> served_;
  std::vector<ServedForm> forms_;  // the first has the number first_form_
  uint16_t first_form_ = 0;
  std::unordered_map<uint32_t, Agreed> converted_;  // calls that are not sent as wanted

  std::shared_ptr<BoundServices> bound_;
};

}  // namespace weft
