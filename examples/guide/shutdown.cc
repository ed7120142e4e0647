// A server that ends well: on SIGTERM it answers what it has begun, and sends its clients
// elsewhere.
//   shutdown                  serves, and prints its address
//   shutdown ADDRESS          the same at that address
//   shutdown ADDRESS... TEXT  calls one of these servers; the next one when that is about to end
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/server.h"
#include "weft/status.h"

// A thread that handlers run on, so that they may take their time.
class Worker final : public weft::Executor {
 public:
  ~Worker() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  bool Run(weft::Function<void()> task) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (tasks_.size() == kMostTasks) return false;  // the call ends with RESOURCE_EXHAUSTED
    tasks_.push_back(std::move(task));
    wake_.notify_one();
    return true;
  }

 private:
  static constexpr size_t kMostTasks = 1000;

  void Work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      weft::Function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<weft::Function<void()>> tasks_;
  bool stop_ = false;
  std::thread thread_{[this] { Work(); }};
};

class Notes final : public guide::Notes::Service {
  absl::Status CountWords(weft::ServerContext&, const guide::CountRequest& request,
                          guide::CountReply* reply) override {
    std::cout << "counting" << std::endl;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it is a long text
    reply->set_words(1 + std::count(request.text().begin(), request.text().end(), ' '));
    return absl::OkStatus();
  }
};

absl::Status Serve(const std::string& at) {
  // Before there are other threads, which inherit it: the signals wait for sigwait().
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  Notes service;
  Worker worker;  // goes after the server, which needs it until it has ended
  auto server = weft::Server::Create({.executor = &worker});
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&service); !added.ok()) return added;
  if (auto listening = (*server)->Listen(at); !listening.ok()) return listening;
  std::cout << (*server)->address() << std::endl;

  int signal = 0;
  sigwait(&signals, &signal);
  (*server)->Shutdown(/*grace_us=*/5'000'000);
  std::cout << "answered " << (*server)->stats().replies_ok << std::endl;
  return absl::OkStatus();
}

// Several servers of the same service, of which one is used at a time.
class Replicas {
 public:
  absl::Status Open(const std::vector<std::string>& addresses) {
    for (const std::string& address : addresses) {
      auto channel = weft::Channel::Open(address);
      if (!channel.ok()) return channel.status();
      channels_.push_back(*std::move(channel));
      stubs_.emplace_back(*channels_.back());
    }
    return absl::OkStatus();
  }

  absl::Status CountWords(const guide::CountRequest& request, guide::CountReply* reply) {
    absl::Status status;
    // Twice around: a channel that was idle hears with its next call that its server has gone.
    for (size_t tries = 0; tries < 2 * stubs_.size(); ++tries) {
      status = stubs_[at_].CountWords(request, reply, {.timeout_us = 60'000'000});
      if (status.ok() || weft::DeliveryOf(status) != weft::Delivery::kNotSent) break;
      at_ = (at_ + 1) % stubs_.size();  // it surely has not run: the next one may
      ++switches_;
    }
    return status;
  }

  size_t switches() const { return switches_; }

 private:
  std::vector<std::unique_ptr<weft::Channel>> channels_;
  std::vector<guide::Notes::Stub> stubs_;
  size_t at_ = 0;
  size_t switches_ = 0;
};

absl::Status Call(const std::vector<std::string>& addresses, const std::string& text) {
  Replicas replicas;
  if (auto opened = replicas.Open(addresses); !opened.ok()) return opened;
  guide::CountRequest request;
  guide::CountReply reply;
  request.set_text(text);
  // With several servers, until it has come back to the first one.
  const size_t switches = addresses.size() == 1 ? 0 : addresses.size();
  do {
    if (auto status = replicas.CountWords(request, &reply); !status.ok()) return status;
  } while (replicas.switches() < switches);
  std::cout << reply.words() << " words";
  if (switches > 0) std::cout << " each time, and " << replicas.switches() << " switches";
  std::cout << std::endl;
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  absl::Status status;
  if (arguments.size() < 2) {
    status = Serve(arguments.empty() ? "127.0.0.1:0" : arguments[0]);
  } else {
    status = Call({arguments.begin(), arguments.end() - 1}, arguments.back());
  }
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
