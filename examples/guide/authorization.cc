// Who may call what, out of a file with rules; and what a client hears of a call that they refuse.
#include "weft/authorization.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/server.h"
#include "weft/service.h"
#include "weft/status.h"

class CountedNotes final : public guide::Notes::Service {
  absl::Status CountWords(weft::ServerContext&, const guide::CountRequest& request,
                          guide::CountReply* reply) override {
    reply->set_words(request.text().empty() ? 0 : 1);
    return absl::OkStatus();
  }
  absl::Status Transfer(weft::ServerContext&, const guide::TransferRequest&,
                        guide::TransferReply*) override {
    return absl::OkStatus();
  }
};

absl::Status Run(const std::string& rules) {
  CountedNotes service;
  auto policy = weft::PolicyFile::Open(rules);
  if (!policy.ok()) return policy.status();
  weft::ServerOptions options;
  options.authorizer = policy->get();
  auto server = weft::Server::Create(options);
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&service); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;
  auto channel = weft::Channel::Open((*server)->address());
  if (!channel.ok()) return channel.status();

  guide::Notes::Stub stub(**channel);
  guide::CountRequest text;
  guide::CountReply words;
  text.set_text("hello");
  if (auto counted = stub.CountWords(text, &words); !counted.ok()) return counted;
  std::cout << words.words() << " word" << std::endl;

  guide::TransferReply balance;
  const absl::Status refused = stub.Transfer(guide::TransferRequest(), &balance);
  std::cout << absl::StatusCodeToString(refused.code())
            << (weft::DeliveryOf(refused) == weft::Delivery::kNotSent ? ", and has not run" : "")
            << "; refused: " << (*server)->stats().denied << std::endl;
  return absl::OkStatus();
}

int main() {
  const char* const folder = std::getenv("TMPDIR");
  const std::string rules = std::string(folder == nullptr ? "/tmp" : folder) + "/weft_guide_rules";
  std::ofstream(rules) << "allow anyone guide.Notes/CountWords  # and nothing else\n";
  absl::Status status = Run(rules);
  std::remove(rules.c_str());
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
