// plain_tcp: copies a tree over plain TCP sockets (plain_stream.h), to compare fileshare with.
//
//   plain_tcp serve FOLDER               prints "listening on PORT"; serves until it is killed
//   plain_tcp get PORT FOLDER [STREAMS]  the server's tree into a local folder
//   plain_tcp put PORT FOLDER [STREAMS]  a local tree into the server's folder
//
// Loopback only. Exit status: 0 done, 1 failed, 2 the command line is wrong.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "core/clock.h"
#include "core/status.h"
#include "examples/fileshare/folder.h"
#include "examples/fileshare/plain_stream.h"
#include "transport/descriptor.h"

namespace fileshare {
namespace {

constexpr uint32_t kDefaultStreams = 4;  // more do not help on few processors
constexpr uint32_t kMaxStreams = 64;
constexpr char kDone = 'd';

// What a client sends first.
struct Order {
  uint32_t puts = 0;
  uint32_t part = 0;
  uint32_t parts = 1;
};

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

absl::Status Carry(int socket, const Folder& root) {
  Order order;
  WEFT_RETURN_IF_ERROR(ReceiveAll(socket, &order, sizeof(order)));
  if (order.parts == 0 || order.parts > kMaxStreams) return absl::DataLossError("not an order");
  if (order.puts == 0) return SendTree(socket, root, order.part, order.parts);
  WEFT_RETURN_IF_ERROR(ReceiveTree(socket, root));
  return SendAll(socket, &kDone, 1);
}

absl::StatusOr<weft::Descriptor> Listen() {
  weft::Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  socklen_t bytes = sizeof(address);
  if (!listener.valid() ||
      bind(listener.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      listen(listener.get(), kMaxStreams) != 0 ||
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return weft::StatusFromErrno(errno, "listening");
  }
  absl::PrintF("listening on %d\n", ntohs(address.sin_port));
  std::fflush(stdout);
  return listener;
}

absl::Status Serve(const Folder& root) {
  WEFT_ASSIGN_OR_RETURN(const weft::Descriptor listener, Listen());
  while (true) {
    const int socket = accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) return weft::StatusFromErrno(errno, "accepting");
    std::thread([socket, &root] {
      const weft::Descriptor connection(socket);
      const absl::Status status = Carry(socket, root);
      if (!status.ok()) absl::FPrintF(stderr, "plain_tcp: %s\n", status.ToString());
    }).detach();
  }
}

absl::Status Copy(uint16_t port, const Folder& root, const Order& order) {
  const weft::Descriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(port);
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
      0) {
    return weft::StatusFromErrno(errno, "connecting");
  }
  WEFT_RETURN_IF_ERROR(SendAll(connection.get(), &order, sizeof(order)));
  if (order.puts == 0) return ReceiveTree(connection.get(), root);
  WEFT_RETURN_IF_ERROR(SendTree(connection.get(), root, order.part, order.parts));
  char done = 0;
  return ReceiveAll(connection.get(), &done, 1);
}

absl::Status CopyAll(uint16_t port, const Folder& root, bool puts, uint32_t streams) {
  const uint64_t start_ns = weft::Clock::Real().NowNs();
  std::vector<absl::Status> results(streams);
  std::vector<std::thread> threads;
  for (uint32_t part = 0; part < streams; ++part) {
    threads.emplace_back([&, part] {
      results[part] = Copy(port, root, {puts ? 1u : 0u, part, streams});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : results) WEFT_RETURN_IF_ERROR(status);
  const uint64_t took_ns = weft::Clock::Real().NowNs() - start_ns;
  absl::PrintF("copied in %.3f s\n", static_cast<double>(took_ns) / weft::kNsPerSec);
  return absl::OkStatus();
}

int Report(const absl::Status& status) {
  if (status.ok()) return 0;
  absl::FPrintF(stderr, "plain_tcp: %s\n", status.ToString());
  return 1;
}

int Main(const std::vector<std::string>& words) {
  const std::string command = words.empty() ? "" : words[0];
  uint32_t port = 0;
  uint32_t streams = kDefaultStreams;
  const bool serves = command == "serve" && words.size() == 2;
  const bool copies = (command == "get" || command == "put") && words.size() >= 3 &&
                      words.size() <= 4 && absl::SimpleAtoi(words[1], &port) && port < 65536 &&
                      (words.size() == 3 || absl::SimpleAtoi(words[3], &streams)) && streams >= 1 &&
                      streams <= kMaxStreams;
  if (!serves && !copies) {
    absl::FPrintF(stderr, "usage: plain_tcp serve FOLDER | get|put PORT FOLDER [STREAMS]\n");
    return 2;
  }
  const absl::StatusOr<Folder> folder = Folder::Open(words[serves ? 1 : 2]);
  if (!folder.ok()) return Report(folder.status());
  return Report(serves ? Serve(*folder)
                       : CopyAll(static_cast<uint16_t>(port), *folder, command == "put", streams));
}

}  // namespace
}  // namespace fileshare

int main(int argc, char** argv) {
  return fileshare::Main(std::vector<std::string>(argv + 1, argv + argc));
}
