// Messages that nobody answers, and a call behind them.
#include <iostream>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/server.h"
#include "weft/service.h"

class Journal final : public guide::Notes::Service {
  absl::Status Note(weft::ServerContext&, const guide::CountRequest& request) override {
    ++notes_;
    for (char c : request.text()) words_ += c == ' ';
    ++words_;
    return absl::OkStatus();
  }
  absl::Status CountWords(weft::ServerContext&, const guide::CountRequest&,
                          guide::CountReply* reply) override {
    std::cout << notes_ << " notes have arrived" << std::endl;
    reply->set_words(words_);
    return absl::OkStatus();
  }

  int notes_ = 0;
  uint64_t words_ = 0;
};

absl::Status Run() {
  Journal journal;
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&journal); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;
  auto channel = weft::Channel::Open((*server)->address());
  if (!channel.ok()) return channel.status();

  guide::Notes::Stub notes(**channel);
  guide::CountRequest note;
  note.set_text("three more words");
  for (int i = 0; i < 1000; ++i) {
    absl::Status handed_over = notes.Note(note);
    if (!handed_over.ok()) return handed_over;
  }

  // It arrives behind them.
  guide::CountReply sum;
  absl::Status counted = notes.CountWords({}, &sum);
  if (!counted.ok()) return counted;
  std::cout << sum.words() << " words" << std::endl;
  return absl::OkStatus();
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
