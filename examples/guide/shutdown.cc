// A server that ends well: on SIGTERM it answers what it has begun, and refuses what comes later.
// `shutdown` serves, and prints its address; `shutdown ADDRESS TEXT` calls it.
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/server.h"

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

absl::Status Serve() {
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
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;
  std::cout << (*server)->address() << std::endl;

  int signal = 0;
  sigwait(&signals, &signal);
  (*server)->Shutdown(/*grace_us=*/5'000'000);
  std::cout << "answered " << (*server)->stats().replies_ok << std::endl;
  return absl::OkStatus();
}

absl::Status Call(const std::string& address, const std::string& text) {
  auto channel = weft::Channel::Open(address);
  if (!channel.ok()) return channel.status();
  guide::CountRequest request;
  guide::CountReply reply;
  request.set_text(text);
  absl::Status status =
      guide::Notes::Stub(**channel).CountWords(request, &reply, {.timeout_us = 60'000'000});
  if (status.ok()) std::cout << reply.words() << " words" << std::endl;
  return status;
}

int main(int argc, char** argv) {
  absl::Status status = argc > 2 ? Call(argv[1], argv[2]) : Serve();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
