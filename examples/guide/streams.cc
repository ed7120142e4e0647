// Many messages in one call, one way and both; handlers on a thread of their own.
#include <condition_variable>
#include <deque>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/server.h"

guide::CountReply Count(const guide::CountRequest& request) {
  guide::CountReply reply;
  std::istringstream text(request.text());
  for (std::string word; text >> word;) reply.set_words(reply.words() + 1);
  return reply;
}

class Notes final : public guide::Notes::Service {
  absl::Status Collect(weft::ServerContext&, weft::ServerReader<guide::CountRequest>& reader,
                       guide::CountReply* reply) override {
    guide::CountRequest request;
    while (reader.Read(&request)) reply->set_words(reply->words() + Count(request).words());
    return absl::OkStatus();
  }
  absl::Status Chat(
      weft::ServerContext&,
      weft::ServerReaderWriter<guide::CountReply, guide::CountRequest>& stream) override {
    guide::CountRequest request;
    while (stream.Read(&request)) {
      if (!stream.Write(Count(request))) return absl::AbortedError("nobody reads");
    }
    return absl::OkStatus();
  }
};

// Where handlers may wait.
class OneThread final : public weft::Executor {
 public:
  ~OneThread() {
    Run([this] { stop_ = true; });
    thread_.join();
  }
  bool Run(weft::Function<void()> task) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_one();
    return true;
  }

 private:
  void Work() {
    while (!stop_) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      weft::Function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<weft::Function<void()>> tasks_;
  bool stop_ = false;  // on the thread
  std::thread thread_{[this] { Work(); }};
};

absl::Status Collect(const guide::Notes::Stub& stub) {
  guide::CountReply reply;
  weft::ClientWriter<guide::CountRequest> collect = stub.Collect(&reply);
  guide::CountRequest request;
  request.set_text("one two three");
  for (int i = 0; i < 1'000; ++i) {
    if (!collect.Write(request)) break;  // Finish() says why
  }
  absl::Status status = collect.Finish();
  if (status.ok()) std::cout << reply.words() << " words" << std::endl;
  return status;
}

absl::Status Chat(const guide::Notes::Stub& stub) {
  weft::ClientReaderWriter<guide::CountRequest, guide::CountReply> chat = stub.Chat();
  guide::CountRequest request;
  guide::CountReply reply;
  for (const char* text : {"one", "one two", "one two three"}) {
    request.set_text(text);
    if (!chat.Write(request) || !chat.Read(&reply)) break;
    std::cout << reply.words() << std::endl;
  }
  chat.WritesDone();
  return chat.Finish();
}

absl::Status Run() {
  OneThread thread;
  Notes service;
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&service, &thread); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;

  auto channel = weft::Channel::Open((*server)->address());
  if (!channel.ok()) return channel.status();
  guide::Notes::Stub stub(**channel);
  if (absl::Status status = Collect(stub); !status.ok()) return status;
  return Chat(stub);
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
