// A hand on the wire between a client and a server, on a thread of its own: it records what the
// client says, or says some of it otherwise.
//
// It knows nothing of what it hands on, but that the first socket is the control connection and
// later ones join it. A client over shared memory brings the first alone.
//
// Threads: the constructor's; TakeRecording() and the destructor too.
// Lifetime: the destructor ends the thread and closes all sockets.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/random.h"
#include "transport/descriptor.h"

namespace weft::bench {

// What clients have said, by socket.
struct Recording {
  std::string hello;    // the first, until the server's first answer: under TLS, its ClientHello
  std::string control;  // the first: all of it
  std::string join;     // the second: all of it. Empty: there was none
};

class Wiretap {
 public:
  // `tamper_every`: one byte in so many that clients send is changed; 0: none. A socket's first
  // `spared_bytes` never are: they would hide what stands behind.
  Wiretap(const std::string& server, uint32_t tamper_every, uint32_t spared_bytes, uint64_t seed);
  ~Wiretap();
  Wiretap(const Wiretap&) = delete;
  Wiretap& operator=(const Wiretap&) = delete;

  // Where clients connect.
  const std::string& address() const { return address_; }

  Recording TakeRecording();
  uint64_t tampered_bytes() const { return tampered_; }

 private:
  struct Way {
    Descriptor client;
    Descriptor server;
    std::string said;  // by the client, up to kMaxRecorded bytes
    size_t hello = 0;  // how much of it came before the server said anything
    uint64_t passed = 0;
    bool answered = false;
    bool over = false;
  };

  void Run();
  void Accept();
  void Pass(Way& way, bool from_client);
  void Tamper(Way& way, char* bytes, size_t count);

  const std::string server_;
  const uint32_t tamper_every_;
  const uint32_t spared_bytes_;
  Random random_;
  Descriptor listening_;
  std::string address_;
  std::atomic<uint64_t> tampered_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<Way> ways_;  // guarded by mutex_
  std::thread thread_;     // last: it uses the others
};

}  // namespace weft::bench
