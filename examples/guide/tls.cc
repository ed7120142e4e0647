// Who calls, and who answers, proved by TLS. `weft cert certs` makes what it needs:
//
//   tls --tls-certificate=certs/server.pem --tls-key=certs/server.key --tls-roots=certs/ca.pem
//   tls --tls-certificate=certs/client.pem --tls-key=certs/client.key --tls-roots=certs/ca.pem
//       ADDRESS TEXT
#include <iostream>
#include <string>

#include "examples/guide/guide.weft.h"
#include "weft/channel.h"
#include "weft/path.h"
#include "weft/security.h"
#include "weft/server.h"
#include "weft/service.h"

class NotesService final : public guide::Notes::Service {
  absl::Status CountWords(weft::ServerContext& context, const guide::CountRequest& request,
                          guide::CountReply* reply) override {
    const weft::PeerIdentity& caller = context.path().identity;
    if (caller.authentication != weft::Authentication::kCertificate) {
      return absl::PermissionDeniedError("only for those who have shown a certificate");
    }
    std::cout << caller.subject << " asks" << std::endl;
    for (size_t at = 0; (at = request.text().find_first_not_of(' ', at)) != std::string::npos;) {
      reply->set_words(reply->words() + 1);
      at = request.text().find(' ', at);
    }
    return absl::OkStatus();
  }
};

absl::Status Serve(const weft::SecurityOptions& security) {
  NotesService service;
  auto server = weft::Server::Create({.security = security});
  if (!server.ok()) return server.status();
  if (auto added = (*server)->AddService(&service); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;
  std::cout << (*server)->address() << std::endl;
  (*server)->Wait();
  return absl::OkStatus();
}

absl::Status Call(const weft::SecurityOptions& security, const std::string& address,
                  const std::string& text) {
  auto channel = weft::Channel::Open(address, {.security = security});
  if (!channel.ok()) return channel.status();
  guide::Notes::Stub stub(**channel);
  guide::CountRequest request;
  guide::CountReply reply;
  request.set_text(text);
  if (auto called = stub.CountWords(request, &reply); !called.ok()) return called;
  const auto path = (*channel)->path();
  if (!path.ok()) return path.status();
  std::cout << path->identity.subject << " says: " << reply.words() << " words" << std::endl;
  return absl::OkStatus();
}

absl::Status Run(int argc, char** argv) {
  auto security = weft::TakeSecurityFlags(&argc, argv);
  if (!security.ok()) return security.status();
  if (!security->has_value()) {
    return absl::InvalidArgumentError(std::string("which certificate?\n") +
                                      weft::kSecurityFlagsHelp);
  }
  return argc < 3 ? Serve(**security) : Call(**security, argv[1], argv[2]);
}

int main(int argc, char** argv) {
  absl::Status status = Run(argc, argv);
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
