// Asks whether, and how, an RDMA address can be reached, on a thread of its own: the provider's
// search blocks for two seconds where nobody answers, and an engine must not.
//
// What it leaves behind is the kernel's knowledge of the neighbour, so that the same question on
// the engine's thread, right after, is answered at once.
//
// Threads: made and destroyed on the engine's; done() from there too.
// Lifetime: the destructor waits for the thread, for two seconds at most; the bell outlives it.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/ofi/fabric.h"

namespace weft {

// A descriptor that is readable once a probe is done.
class ProbeBell {
 public:
  static absl::StatusOr<std::unique_ptr<ProbeBell>> Create();
  ~ProbeBell();
  ProbeBell(const ProbeBell&) = delete;
  ProbeBell& operator=(const ProbeBell&) = delete;

  int fd() const { return fd_; }
  void Ring();
  void Silence();

 private:
  explicit ProbeBell(int fd) : fd_(fd) {}
  const int fd_;
};

class AddressProbe {
 public:
  // `info`: with the addresses to connect from and to. RESOURCE_EXHAUSTED: no thread can be had.
  static absl::StatusOr<std::unique_ptr<AddressProbe>> Start(InfoPtr info, ProbeBell* bell);
  ~AddressProbe();
  AddressProbe(const AddressProbe&) = delete;
  AddressProbe& operator=(const AddressProbe&) = delete;

  bool done() const { return done_.load(std::memory_order_acquire); }
  // UNAVAILABLE: nobody answers at that address. REQUIRES: done().
  const absl::Status& result() const { return result_; }

 private:
  AddressProbe(InfoPtr info, ProbeBell* bell) : info_(std::move(info)), bell_(bell) {}
  void Run();

  const InfoPtr info_;
  ProbeBell* const bell_;
  absl::Status result_;  // written by the thread, before done_
  std::atomic<bool> done_{false};
  bool running_ = false;
  pthread_t thread_ = {};  // not std::thread, which throws where there is none left
};

}  // namespace weft
