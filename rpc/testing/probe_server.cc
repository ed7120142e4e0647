// A server of the test service in a process of its own: prints its address, serves until killed or
// until its standard input ends.
#include <unistd.h>

#include <cstdio>

#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"

int main() {
  weft::test::ProbeService service;
  auto server = weft::Server::Create();
  if (!server.ok()) return 1;
  if (!(*server)->AddService(&service).ok()) return 1;
  if (!(*server)->Listen("127.0.0.1:0").ok()) return 1;
  std::printf("%s\n", (*server)->address().c_str());
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}
