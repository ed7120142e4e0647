// Sessions that a server gives its clients (embed/nbdkit, embed/rocksdb), so that nothing that a
// client has asked for comes behind what it asks for later, over another connection.
//
// A client attaches by a stream, which lasts as long as its session. It is told the session's
// number, once, and names it in its requests. `More` is what a service has of each session, `Reply`
// the message that tells of it.
//
//   state     set by                                left for
//   kWaiting  Attach()                              kOpening, when the client's earlier sessions
//                                                   are gone; kClosed
//   kOpening  `ready` is called, and begins what    kOpen; kClosed
//             has to be done before
//   kOpen     Open(): its client is told its        kClosed, when its stream ends, or the client
//             number                                attaches again
//   kClosed   requests that name it are refused,    gone, when nothing of it is under way: `gone`
//             and what waits for a disk ends so     is called
//
// Limits: kMaxSessions, those that are closed included, and the pool of buffers. Of both one client
// (PathInfo::client, whatever ids it gives itself) leaves some to others, of the pool whole slabs
// (transport/buffer_pool.h).
//
// Threads: the engine's, except where said. Lifetime: engine and buffers outlive it, and it its
//   tickets. REQUIRES: the engine has a thread of its own, or is driven by another one while Stop()
//   and Clear() wait.
// Invariants: a request is carried out only while its session is kOpen, and a session is told to
//   its client only when nothing of its client's earlier ones can still be carried out.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/check.h"
#include "core/function.h"
#include "core/random.h"
#include "core/strings.h"
#include "embed/client_limit.h"
#include "embed/nbdkit/disk_pool.h"
#include "transport/buffer_pool.h"
#include "weft/coroutine.h"
#include "weft/engine.h"
#include "weft/service.h"

namespace weft::embed {

inline absl::Status SessionOver() {
  return absl::AbortedError("no such session: it has ended, or never began; attach");
}

template <class Reply, class More>
class ServerSessions {
 public:
  // A connection has one, and another one while that ends: with more than 1,024 connections some
  // may find none.
  static constexpr uint32_t kMaxSessions = 2048;

  struct Session;
  struct Leave {
    void operator()(Session* session) const { session->owner.OnRequestOver(*session); }
  };
  // In Session::under_way, beside how many there are.
  static constexpr uint32_t kNoMoreBegin = uint32_t{1} << 31;
  // A request under way. Released when nothing of it can be carried out any more; on any thread.
  using Ticket = std::unique_ptr<Session, Leave>;

  enum class State : uint8_t { kWaiting = 1, kOpening = 2, kOpen = 3, kClosed = 4 };
  struct Session : More {
    Session(ServerSessions& owner, uint64_t number, std::string id, uint64_t client,
            ClientLimit::Place place, More more)
        : More(std::move(more)),
          owner(owner),
          number(number),
          id(std::move(id)),
          client(client),
          place(std::move(place)) {}

    ServerSessions& owner;
    const uint64_t number;
    const std::string id;
    const uint64_t client;  // PathInfo::client
    const ClientLimit::Place place;
    uint64_t epoch = 0;  // that it was told
    // Any thread. Written by the engine's, but for under_way: requests, and kNoMoreBegin once the
    // session is closed. So one thread sees that nothing of a closed one is under way any more.
    std::atomic<State> state{State::kWaiting};
    std::atomic<uint32_t> under_way{0};
    // Engine thread only.
    std::optional<ServerWriter<Reply>> stream;  // none: it has ended
    Reply told;
  };

  // `ready`(session): calls Open(), now or later. `gone`(session): takes what is to be kept of it.
  ServerSessions(Engine& engine, BufferPool& buffers, Function<void(Session&)> ready,
                 Function<void(Session&)> gone)
      : engine_(engine),
        buffers_(buffers),
        ready_(std::move(ready)),
        gone_(std::move(gone)),
        sweep_(engine) {}

  // `id`: what its client is to itself, over all its connections.
  void Attach(std::string id, ServerWriter<Reply> stream, More more = {}) {
    if (const auto earlier = of_id_.find(id); earlier != of_id_.end()) {
      Close(earlier->second.back(), absl::AbortedError("the client has attached again"));
      Sweep();
    }
    const uint64_t client = stream.context().path().client;
    absl::StatusOr<ClientLimit::Place> place = session_limit_.Take(client);
    if (!place.ok()) return stream.Finish(place.status());
    const uint64_t number = SecureRandom64();
    Session& session =
        sessions_.try_emplace(number, *this, number, id, client, *std::move(place), std::move(more))
            .first->second;
    of_id_[id].push_back(number);
    session.stream = std::move(stream);
    // May run here and now.
    session.stream->context().OnCancel([this, number] {
      Close(number, absl::CancelledError("its client is gone"));
      Sweep();
    });
    MakeReady(id);
  }

  // Tells the client, with what `session.told` has beside the number and the epoch.
  void Open(Session& session, uint64_t epoch) {
    session.epoch = epoch;
    session.told.set_session(session.number);
    session.told.set_epoch(epoch);
    session.state.store(State::kOpen);
    // The message stays until it has been written. If that fails, the stream's context says so.
    session.stream->Write(session.told, [ticket = Enter(session)](bool) {});
  }

  // Of a request that names the session: ABORTED, or RESOURCE_EXHAUSTED: `most` are under way.
  // `epoch`: of the medium, now.
  absl::StatusOr<Ticket> Admit(uint64_t number, uint64_t epoch, uint32_t most) {
    const auto found = sessions_.find(number);
    if (found == sessions_.end() || found->second.state.load() != State::kOpen) {
      return SessionOver();
    }
    Session& session = found->second;
    if (session.epoch != epoch) {
      return absl::AbortedError("the medium has lost what was not synced; attach again");
    }
    if (session.under_way.load() >= most) {
      return absl::ResourceExhaustedError(StrCat(most, " requests of this session are under way"));
    }
    return Enter(session);
  }
  // REQUIRES: it is not closed: one that is, and idle, is swept, whoever has a ticket of it.
  static Ticket Enter(Session& session) {
    // Ours: whoever enters has just seen its state, and the engine's thread alone closes it
    WEFT_DCHECK((session.under_way.load() & kNoMoreBegin) == 0);
    session.under_way.fetch_add(1);
    return Ticket(&session);
  }

  // A buffer for a payload of the session's client.
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(const Session& session, uint64_t bytes) {
    return buffers_.Allocate(bytes, session.client);
  }

  // `work`(call) on a thread of the pool, in its client's turn, and its status as the call's end.
  template <class Call, class Work>
  static void RunOn(DiskPool& disks, Call call, Ticket ticket, Work work) {
    const uint64_t client = ticket->client;
    disks.Run(client, [call = std::move(call), ticket = std::move(ticket),
                       work = std::move(work)]() mutable {
      if (ticket->state.load() == State::kClosed) return call.Finish(SessionOver());
      absl::Status status = work(call);
      call.Finish(std::move(status));
    });
  }

  // Runs `task` on the engine, from another thread: and so never waits for ever, for the engine
  // makes room. Any other thread.
  void Post(Function<void()> task) {
    while (!engine_.Post(std::move(task))) std::this_thread::yield();
  }

  // Ends all sessions' streams, so that a server's Shutdown() need not wait for them. What is under
  // way goes on. Any thread.
  void End() {
    Post([this] {
      std::vector<uint64_t> numbers;
      for (const auto& [number, session] : sessions_) numbers.push_back(number);
      for (const uint64_t number : numbers) {
        Close(number, absl::UnavailableError("the server is about to end"));
      }
      Sweep();
    });
  }

  // At the end: first no session becomes ready any more; then, when the pool is gone, none is left.
  // Both wait for the engine, behind what was posted before. Any other thread.
  void Stop() {
    RunOnEngine([this] { stopping_ = true; });
  }
  void Clear() {
    RunOnEngine([this] {
      over_.clear();
      sessions_.clear();
    });
  }
  bool stopping() const { return stopping_; }

 private:
  // Nothing to do for one that is closed, or gone.
  void Close(uint64_t number, absl::Status why) {
    const auto found = sessions_.find(number);
    if (found == sessions_.end()) return;
    Session& session = found->second;
    if (session.state.exchange(State::kClosed) == State::kClosed) return;
    if (session.under_way.fetch_or(kNoMoreBegin) == 0) over_.push_back(number);
    if (!session.stream.has_value()) return;
    ServerWriter<Reply> stream = *std::move(session.stream);
    session.stream.reset();
    stream.Finish(std::move(why));
  }

  // Takes the sessions that are over, and looks at no others: there may be kMaxSessions of them,
  // and this is on the thread on which all clients' requests begin.
  void Sweep() {
    while (!over_.empty()) {
      const auto found = sessions_.find(over_.back());
      over_.pop_back();
      gone_(found->second);
      const std::string id = found->second.id;
      const auto of_id = of_id_.find(id);
      std::erase(of_id->second, found->first);
      if (of_id->second.empty()) of_id_.erase(of_id);
      sessions_.erase(found);
      MakeReady(id);
    }
  }

  // The session of this id that waits, if there is no earlier one any more.
  void MakeReady(const std::string& id) {
    const auto of_id = of_id_.find(id);
    if (stopping_ || of_id == of_id_.end() || of_id->second.size() > 1) return;
    Session& session = sessions_.find(of_id->second.front())->second;
    if (session.state.load() != State::kWaiting) return;
    session.state.store(State::kOpening);
    ready_(session);
  }

  // Whoever leaves it on the engine may use it still, so that it is swept later.
  void OnRequestOver(Session& session) {
    if (session.under_way.fetch_sub(1) != (kNoMoreBegin | 1)) return;
    // Nobody else takes it from here.
    const uint64_t number = session.number;
    if (engine_.OnEngine()) {
      over_.push_back(number);
      return sweep_.Set(0, [this] { Sweep(); });
    }
    Post([this, number] {
      over_.push_back(number);
      Sweep();
    });
  }

  void RunOnEngine(Function<void()> task) {
    std::promise<void> ran;
    Post([&task, &ran] {
      task();
      ran.set_value();
    });
    ran.get_future().wait();
  }

  Engine& engine_;
  BufferPool& buffers_;
  ClientLimit session_limit_{"sessions, with those that are not over yet,", kMaxSessions};
  Function<void(Session&)> ready_;
  Function<void(Session&)> gone_;

  // Engine thread only. Sessions stay where they are while something of them is under way.
  std::unordered_map<uint64_t, Session> sessions_;
  // Numbers, in their order; two at most: one that is closed, with requests under way, and one
  // that waits for that. Only the last may not be closed.
  std::unordered_map<std::string, std::vector<uint64_t>> of_id_;
  std::vector<uint64_t> over_;  // closed, and nothing of them is under way; each once
  bool stopping_ = false;

  Alarm sweep_;
};

}  // namespace weft::embed
