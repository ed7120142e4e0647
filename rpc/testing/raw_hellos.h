// What raw peers (raw_peer.h) say when a connection opens.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "rpc/wire/frame.h"
#include "rpc/wire/hello.pb.h"

namespace weft::test {

// Of a server that knows calls, and nothing that came later: "weft.test.Probe" has these methods.
inline rpc::ServerHello OldServerHello(std::initializer_list<const char*> methods) {
  rpc::ServerHello hello;
  hello.set_protocol(kRpcProtocolVersion);
  hello.set_max_outstanding_calls(4);
  hello.set_max_request_bytes(1000);
  rpc::ServiceTable* const service = hello.add_services();
  service->set_name("weft.test.Probe");
  for (const char* method : methods) service->add_methods(method);
  return hello;
}

// Of a peer, as the side that calls.
inline rpc::ClientHello PeerCallingHello() {
  rpc::ClientHello hello;
  hello.set_protocol(kRpcProtocolVersion);
  hello.set_max_outstanding_calls(4);
  hello.set_max_reply_bytes(1000);
  hello.set_max_streams(4);
  hello.set_stream_window_messages(4);
  hello.set_stream_window_bytes(1000);
  return hello;
}

// Of one that listens, or that dials the peer "server".
inline rpc::ServerHello PeerServingHello(const std::string& id) {
  rpc::ServerHello hello = OldServerHello({"Echo"});
  hello.set_max_streams(4);
  hello.set_stream_window_messages(4);
  hello.set_stream_window_bytes(1000);
  hello.set_peer_id(id);
  hello.set_incarnation(77);
  return hello;
}
inline rpc::ClientHello PeerDialingHello(const std::string& id, uint64_t incarnation) {
  rpc::ClientHello hello = PeerCallingHello();
  hello.mutable_peer()->set_id(id);
  hello.mutable_peer()->set_incarnation(incarnation);
  hello.mutable_peer()->set_wanted("server");
  *hello.mutable_peer()->mutable_server() = PeerServingHello(id);
  return hello;
}

}  // namespace weft::test
