// Serves a greeter and calls it, and reads a record of its memory, over whatever path the two find.
// Prints the reply.
#include <array>
#include <iostream>
#include <memory>

#include "core/status.h"
#include "greeter.weft.h"
#include "greeting.weft.h"
#include "rpc/channel.h"
#include "transport/path.h"
#include "util.h"
#include "weft/weft.h"

// This program's own headers, whatever Weft's are called inside.
static_assert(consumer::own_core_status_h + consumer::own_rpc_channel_h +
                  consumer::own_transport_path_h + consumer::own_util_h ==
              4);

namespace {

class Greeter : public consumer::Greeter::Service {
 public:
  absl::Status Greet(weft::ServerContext&, const consumer::GreetRequest& request,
                     consumer::Greeting* reply) override {
    reply->set_text("hello, " + request.name());
    return absl::OkStatus();
  }
};

// Counts a visit in the server's memory, and looks.
absl::Status Visit(weft::Channel& channel, const weft::RemoteRegion& region) {
  auto visitors = weft::RemoteArray<consumer::VisitorLayout>::Open(channel, region);
  if (!visitors.ok()) return visitors.status();
  auto before = (*visitors)->FetchAdd(1, &consumer::VisitorLayout::visits, 1);
  if (!before.ok()) return before.status();
  consumer::VisitorLayout visitor;
  if (auto status = (*visitors)->Read(1, &visitor); !status.ok()) return status;
  return visitor.visits == *before + 1 ? absl::OkStatus()
                                       : absl::InternalError("the visit was not counted");
}

absl::Status Run() {
  Greeter greeter;
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  if (auto status = (*server)->AddService(&greeter); !status.ok()) return status;
  if (auto status = (*server)->Listen("127.0.0.1:0"); !status.ok()) return status;

  auto channel = weft::Channel::Open((*server)->address());
  if (!channel.ok()) return channel.status();
  consumer::Greeter::Stub stub(**channel);
  consumer::GreetRequest request;
  request.set_name("consumer");
  consumer::Greeting reply;
  if (auto status = stub.Greet(request, &reply, {.timeout_us = 10'000'000}); !status.ok()) {
    return status;
  }

  std::array<consumer::VisitorLayout, 3> visitors;
  auto exported = (*server)->Export(weft::BytesOf(visitors),
                                    weft::ExportAs<consumer::VisitorLayout>(weft::kAllRights));
  if (!exported.ok()) return exported.status();
  if (auto status = Visit(**channel, (*exported)->handle()); !status.ok()) return status;
  std::cout << reply.text() << "\n";
  return absl::OkStatus();
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
