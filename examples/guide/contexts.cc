// What travels beside a call, and how a call is given up.
#include <iostream>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/cord.h"
#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/client_context.h"
#include "weft/server.h"
#include "weft/service.h"

class NotesService final : public guide::Notes::Service {
 public:
  std::latch has_a_caller{1};
  std::latch has_stopped{1};

 private:
  // Greets who asks, by what stands beside the request.
  absl::Status CountWords(weft::ServerContext& context, const guide::CountRequest& request,
                          guide::CountReply* reply) override {
    const std::string* user = context.metadata().Find("user");
    if (user == nullptr) {
      absl::Status error = absl::UnauthenticatedError("who are you?");
      error.SetPayload("example.com/hint", absl::Cord("send the metadata \"user\""));
      return error;
    }
    if (auto added = context.AddReplyMetadata("greeting", "hello " + *user); !added.ok()) {
      return added;
    }
    for (size_t at = 0; (at = request.text().find_first_not_of(' ', at)) != std::string::npos;) {
      reply->set_words(reply->words() + 1);
      at = request.text().find(' ', at);
    }
    return absl::OkStatus();
  }

  // Waits for a note that never comes, until nobody wants it any more.
  void StartGet(weft::UnaryCall<guide::GetRequest, guide::GetReply> call) override {
    weft::ServerContext& context = call.context();
    waiting_.emplace(std::move(call));
    context.OnCancel([this] {
      waiting_->Finish(absl::CancelledError("nobody waits for it"));
      waiting_.reset();
      has_stopped.count_down();
    });
    has_a_caller.count_down();
  }

  std::optional<weft::UnaryCall<guide::GetRequest, guide::GetReply>> waiting_;
};

absl::Status Run() {
  NotesService service;
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&service); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;
  auto channel = weft::Channel::Open((*server)->address());
  if (!channel.ok()) return channel.status();
  guide::Notes::Stub stub(**channel);

  // Metadata there and back.
  guide::CountRequest request;
  guide::CountReply reply;
  request.set_text("three words here");
  weft::ClientContext context;
  if (auto added = context.AddMetadata("user", "anna"); !added.ok()) return added;
  if (auto called = stub.CountWords(request, &reply, {.context = &context}); !called.ok()) {
    return called;
  }
  std::cout << *context.reply_metadata().Find("greeting") << ", " << reply.words() << " words"
            << std::endl;

  // The details of an error.
  const absl::Status refused = stub.CountWords(request, &reply);
  std::cout << refused.message() << " "
            << refused.GetPayload("example.com/hint").value_or(absl::Cord()) << std::endl;

  // Another thread gives up the call that this one waits for.
  weft::ClientContext patient;
  std::thread impatient([&] {
    service.has_a_caller.wait();
    while (!patient.Cancel().ok()) std::this_thread::yield();
  });
  guide::GetReply note;
  const absl::Status cancelled = stub.Get({}, &note, {.context = &patient});
  impatient.join();
  service.has_stopped.wait();
  std::cout << absl::StatusCodeToString(cancelled.code()) << ", and the handler stopped"
            << std::endl;
  return absl::OkStatus();
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
