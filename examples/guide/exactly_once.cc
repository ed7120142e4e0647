// A transfer that must not happen twice: the server goes away after it has moved the money and
// before it has answered. Its successor answers, from what the bank has written down.
#include <chrono>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/engine.h"
#include "weft/server.h"
#include "weft/service.h"

// What outlives the servers: a balance, and the outcomes of calls, which change together. (A real
// one is a database; one of its transactions is what the mutex is here.)
class Bank final : public weft::CompletionStore {
 public:
  int64_t Withdraw(int64_t amount, const weft::CompletionId* call) {
    const std::lock_guard lock(mutex_);
    balance_ -= amount;
    if (call != nullptr) {
      guide::TransferReply reply;
      reply.set_balance(balance_);
      outcomes_[Key(*call)] = {absl::OkStatus(), reply.SerializeAsString()};
    }
    return balance_;
  }
  int64_t balance() {
    const std::lock_guard lock(mutex_);
    return balance_;
  }

  std::vector<Session> Sessions() override { return sessions_; }
  absl::Status AddSession(const Session& session) override {
    sessions_.push_back(session);
    return absl::OkStatus();
  }
  void RemoveSession(const weft::SessionId& id) override {
    std::erase_if(sessions_, [&](const Session& session) { return session.id == id; });
    Forget(id, ~uint64_t{0});
  }
  absl::StatusOr<std::optional<Outcome>> Find(const weft::CompletionId& call) override {
    const std::lock_guard lock(mutex_);
    const auto found = outcomes_.find(Key(call));
    return found == outcomes_.end() ? std::nullopt : std::optional(found->second);
  }
  void Forget(const weft::SessionId& session, uint64_t first_unanswered) override {
    const std::lock_guard lock(mutex_);
    outcomes_.erase(outcomes_.lower_bound(Key({session, 0})),
                    outcomes_.lower_bound(Key({session, first_unanswered})));
  }

 private:
  using CallKey = std::tuple<uint64_t, uint64_t, uint64_t>;
  static CallKey Key(const weft::CompletionId& call) {
    return {call.session.high, call.session.low, call.sequence};
  }

  std::vector<Session> sessions_;  // used by one server's engine at a time
  std::mutex mutex_;
  int64_t balance_ = 100;
  std::map<CallKey, Outcome> outcomes_;
};

class Teller final : public guide::Notes::Service {
 public:
  using Call = weft::UnaryCall<guide::TransferRequest, guide::TransferReply>;

  Teller(Bank* bank, bool answers) : bank_(*bank), answers_(answers) {}

  void StartTransfer(Call call) override {
    const int64_t amount = call.request().amount();
    call.reply()->set_balance(bank_.Withdraw(amount, call.context().completion_id()));
    if (answers_) return call.Finish(absl::OkStatus());
    call.context().OnCancel([this] { unanswered_.reset(); });  // the server ends
    unanswered_ = std::move(call);
    moved.set_value();
  }

  std::promise<void> moved;

 private:
  Bank& bank_;
  const bool answers_;
  std::optional<Call> unanswered_;
};

absl::StatusOr<std::unique_ptr<weft::Server>> Serve(Bank* bank, Teller* teller,
                                                    const std::string& address) {
  weft::ServerOptions options;
  options.completion_store = bank;
  auto server = weft::Server::Create(options);
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(teller); !added.ok()) return added;
  if (auto listening = (*server)->Listen(address); !listening.ok()) return listening;
  return server;
}

absl::Status Run() {
  Bank bank;
  Teller first(&bank, /*answers=*/false);
  Teller second(&bank, /*answers=*/true);
  auto server = Serve(&bank, &first, "127.0.0.1:0");
  if (!server.ok()) return server.status();
  const std::string address = (*server)->address();

  auto engine = weft::OpenNetworkEngine({});
  if (!engine.ok()) return engine.status();
  weft::ChannelOptions options;
  options.retry.max_attempts = 4;
  options.retry.exactly_once = true;
  auto channel = weft::Channel::Open(**engine, address, options);
  if (!channel.ok()) return channel.status();
  guide::Notes::Stub stub(**channel);

  guide::TransferRequest request;
  request.set_amount(30);
  guide::TransferReply reply;
  std::promise<absl::Status> ended;
  stub.Transfer(request, &reply, {.timeout_us = 10'000'000, .wait_for_server = true},
                [&](absl::Status status) { ended.set_value(std::move(status)); });
  first.moved.get_future().wait();
  server->reset();  // with the answer
  server = Serve(&bank, &second, address);
  if (!server.ok()) return server.status();

  if (auto transferred = ended.get_future().get(); !transferred.ok()) return transferred;
  std::cout << "the answer says " << reply.balance() << ", the bank says " << bank.balance()
            << std::endl;
  return absl::OkStatus();
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
