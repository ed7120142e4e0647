// A large value that is in no message, and that stays where it was received.
#include <iostream>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/client_context.h"
#include "weft/server.h"

// Keeps what it is sent, and sends it back to those who send nothing.
class Store final : public guide::Notes::Service {
  absl::Status CountWords(weft::ServerContext& context, const guide::CountRequest& request,
                          guide::CountReply* reply) override {
    absl::Cord& value = values_[request.text()];
    if (!context.attachment().empty()) {
      value = context.attachment();
    } else {
      context.SetReplyAttachment(value);
    }
    reply->set_words(value.size());
    return absl::OkStatus();
  }

  std::map<std::string, absl::Cord> values_;
};

absl::Status Run() {
  Store store;
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&store); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;
  auto channel = weft::Channel::Open((*server)->address());
  if (!channel.ok()) return channel.status();

  guide::Notes::Stub notes(**channel);
  guide::CountRequest request;
  guide::CountReply reply;
  request.set_text("key");
  const std::string page(1 << 20, 'p');
  const std::string footer = "the end";
  absl::Cord pieces = absl::MakeCordFromExternal(page, [] {});
  pieces.Append(footer);
  weft::ClientContext put;
  if (auto set = put.SetAttachment(std::move(pieces)); !set.ok()) return set;
  absl::Status stored = notes.CountWords(request, &reply, {.context = &put});
  if (!stored.ok()) return stored;
  std::cout << reply.words() << " bytes are stored" << std::endl;

  absl::Cord value;
  {
    weft::ClientContext get;
    absl::Status found = notes.CountWords(request, &reply, {.context = &get});
    if (!found.ok()) return found;
    value = get.reply_attachment();
  }
  std::cout << value.size() << " bytes came back, up to \"" << value.Subcord(page.size(), 7) << '"'
            << std::endl;
  return absl::OkStatus();
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
