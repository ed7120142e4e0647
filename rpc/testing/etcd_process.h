// etcd itself, in a process of its own, with one member and an empty store: to be stopped, and to
// come back with what it had.
//
// It listens at an address of 127.0.0.0/8 that nobody else uses, at ports that the kernel chose
// there: while it is stopped nobody takes them.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/strings.h"

extern char** environ;

namespace weft::test {

class EtcdProcess {
 public:
  // Why a test cannot have one; empty: it can.
  static std::string WhyNot() {
    FILE* const said = popen("etcd --version 2>&1", "r");
    if (said == nullptr) return "a shell cannot be started";
    char line[200] = {};
    if (fgets(line, sizeof(line), said) == nullptr) line[0] = '\0';
    pclose(said);
    int major = 0;
    int minor = 0;
    if (sscanf(line, "etcd Version: %d.%d", &major, &minor) != 2) {
      return "etcd is not installed (Debian: etcd-server)";
    }
    if (major > 3 || (major == 3 && minor >= 4)) return "";
    return StrCat("etcd ", major, ".", minor, " has no /v3 over HTTP: 3.4 is the first that has");
  }

  // `folder`: what it stores; not there yet.
  explicit EtcdProcess(std::string folder) : folder_(std::move(folder)) {
    std::random_device random;
    // Not 127.0.x.x, where others are.
    host_ = StrCat("127.", 1 + random() % 254, ".", random() % 255, ".", 1 + random() % 254);
  }
  ~EtcdProcess() { Stop(SIGKILL); }
  EtcdProcess(const EtcdProcess&) = delete;
  EtcdProcess& operator=(const EtcdProcess&) = delete;

  // It serves when this returns true; false: it has said why, in the test's log. `options`: of the
  // command line; with `tls` they say with which certificates it speaks to clients.
  bool Start(const std::vector<std::string>& options = {}, bool tls = false) {
    const bool is_first = client_port_ == 0;
    for (int attempt = 0; attempt < 5; ++attempt) {
      // Somebody may take a port between here and there.
      if (is_first) client_port_ = FreePort();
      if (is_first) peer_port_ = FreePort();
      if (Spawn(options, tls ? "https://" : "http://")) return true;
      std::printf("%s\n", words_.c_str());
    }
    return false;
  }

  void Stop(int signal = SIGTERM) {
    if (process_ == 0) return;
    kill(process_, signal);
    waitpid(process_, nullptr, 0);
    process_ = 0;
    reader_.join();
  }

  const std::string& host() const { return host_; }
  std::string address() const { return StrCat(host_, ":", client_port_); }

 private:
  uint16_t FreePort() const {
    const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, host_.c_str(), &address.sin_addr), 1);
    EXPECT_EQ(bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(getsockname(probe, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    close(probe);
    return ntohs(address.sin_port);
  }

  bool Spawn(const std::vector<std::string>& options, const std::string& scheme) {
    const std::string clients = StrCat(scheme, address());
    const std::string peers = StrCat("http://", host_, ":", peer_port_);
    std::vector<std::string> words = {
        "etcd", "--data-dir", folder_, "--listen-client-urls", clients, "--advertise-client-urls",
        clients, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
        "--initial-cluster", StrCat("default=", peers), "--logger", "zap",
        // A machine that is busy is no reason for an election.
        "--heartbeat-interval", "200", "--election-timeout", "2000"};
    words.insert(words.end(), options.begin(), options.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    int output[2];
    EXPECT_EQ(pipe2(output, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDERR_FILENO);
    EXPECT_EQ(posix_spawnp(&process_, "etcd", &actions, nullptr, arguments.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(output[1]);
    words_.clear();
    char bytes[4096];
    ssize_t count = 0;
    while (words_.find("serving client traffic") == std::string::npos) {
      count = read(output[0], bytes, sizeof(bytes));
      if (count <= 0) break;
      words_.append(bytes, static_cast<size_t>(count));
    }
    // What it says later is read, so that it does not wait for a reader.
    reader_ = std::thread([from = output[0]] {
      char rest[4096];
      while (read(from, rest, sizeof(rest)) > 0) {
      }
      close(from);
    });
    if (count > 0) return true;
    Stop(SIGKILL);
    return false;
  }

  const std::string folder_;
  std::string host_;
  uint16_t client_port_ = 0;  // 0: not chosen yet
  uint16_t peer_port_ = 0;
  pid_t process_ = 0;
  std::string words_;  // that it has said until it served
  std::thread reader_;
};

}  // namespace weft::test
