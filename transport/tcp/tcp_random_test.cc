// Two sides, several links, and everything at once, against a model: batches arrive in order and
// once, operations end once, what is said to be moved is moved, and nothing touches memory that was
// reclaimed.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/strings.h"
#include "core/test_seed.h"
#include "transport/tcp/testing/limited_sends.h"
#include "transport/tcp/testing/tcp_side.h"

namespace weft {
namespace {

constexpr size_t kLinks = 3;
constexpr size_t kTargets = 12;  // of each side
constexpr int kSteps = 4'000;

TcpOptions Options() {
  TcpOptions options;
  options.wide_slot_bytes = (64 << 10) + 576;
  options.max_outstanding_operations = 100;
  return options;
}

// Memory of one side that the other reads or writes: one operation at a time, so that what must be
// in it is known.
struct Target {
  std::vector<std::byte> memory;
  std::vector<std::byte> expected;
  std::unique_ptr<Region> region;  // null: reclaimed, and nothing changes it any more
  std::vector<std::byte> before;   // what was there until then
  bool busy = false;
  bool known = true;  // `expected` is what must be there
};

struct Part {
  Target* target = nullptr;
  size_t offset = 0;
  std::vector<std::byte> data;  // local
  std::unique_ptr<Region> local;
};

struct Job final : Operation {
  void OnComplete(const absl::Status& status) override { ended(status); }
  bool is_read = false;
  size_t link = 0;
  std::vector<Part> parts;
  std::function<void(const absl::Status&)> ended;
};

class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {
    for (size_t s = 0; s < 2; ++s) {
      for (auto& target : targets_[s]) target = NewTarget(s);
      for (LinkEnd& end : ends_[s]) {
        end.on_down = [&end] {
          EXPECT_EQ(end.down_status.code(), absl::StatusCode::kUnavailable) << end.down_status;
        };
      }
      sides_[s].on_received = [this, s] { OnBatch(s); };
    }
    for (size_t i = 0; i < kLinks; ++i) Open(i);
  }

  void Run() {
    for (int step = 0; step < kSteps && !testing::Test::HasFailure(); ++step) Step();
    sends_.at_once = LimitedSends::kAll;
    EXPECT_TRUE(RunUntil([&] {
      return jobs_.empty() && arrived_[0] == sent_[1] && arrived_[1] == sent_[0];
    })) << jobs_.size()
        << " operations have not ended";
    for (size_t s = 0; s < 2; ++s) {
      for (const auto& target : targets_[s]) Check(*target);
      for (LinkEnd& end : ends_[s]) end.link.reset();
      EXPECT_EQ(sides_[s].domain->stats().send_slots_in_use, 0u);
      EXPECT_EQ(sides_[s].domain->stats().links_open, 0u);
    }
    for (const auto& target : retired_) Check(*target);
    std::printf(
        "%d reads and writes, of which %d were refused and %d had no room; %d batches; "
        "%zu regions reclaimed; %d links closed\n",
        begun_, refused_, no_room_, batches_, retired_.size(), closes_);
  }

 private:
  size_t Pick(size_t bound) { return random_.Uniform(bound); }

  // Mostly few, now and then those of several pieces.
  size_t Bytes(size_t most) {
    const size_t scale = Pick(10) == 0 ? most : Pick(3) == 0 ? 5000 : 100;
    return 1 + Pick(std::min(scale, most));
  }

  void Fill(std::vector<std::byte>* memory) {
    for (size_t at = 0; at < memory->size(); at += sizeof(uint64_t)) {
      const uint64_t random = random_.Next64();
      std::memcpy(memory->data() + at, &random, std::min(sizeof(random), memory->size() - at));
    }
  }

  template <class Done>
  bool RunUntil(Done done) {
    return TcpRunUntil({&sides_[0], &sides_[1]}, done);
  }

  // --- targets ----------------------------------------------------------------------------------

  std::unique_ptr<Target> NewTarget(size_t s) {
    auto target = std::make_unique<Target>();
    target->memory.resize(size_t{1} << (8 + Pick(11)));
    Fill(&target->memory);
    target->expected = target->memory;
    target->region =
        std::move(sides_[s].domain->Register(target->memory, Access::kRemoteReadWrite)).value();
    return target;
  }

  static void Check(const Target& target) {
    EXPECT_TRUE(!target.known || target.memory == target.expected);
  }

  // At any moment. The memory is its owner's again, who changes all of it.
  void Reclaim(size_t s, size_t t) {
    std::unique_ptr<Target> target = std::exchange(targets_[s][t], NewTarget(s));
    if (!target->busy) Check(*target);
    EXPECT_TRUE(ends_[s][0].link->Reclaim(std::move(target->region)));
    target->before = std::move(target->expected);
    Fill(&target->memory);
    target->expected = target->memory;
    target->known = true;
    retired_.push_back(std::move(target));
  }

  // --- links ------------------------------------------------------------------------------------

  void Open(size_t i) {
    sends_.at_once = LimitedSends::kAll;
    const int buffer = static_cast<int>(16384u << Pick(5));
    setsockopt(sides_[1].listening_fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
    setsockopt(sides_[1].listening_fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
    for (size_t s = 0; s < 2; ++s) {
      ends_[s][i].link.reset();
      sent_[s][i] = arrived_[s][i] = 0;
    }
    ++epochs_[i];
    TcpLinkEnds(sides_[0], ends_[0][i], sides_[1], ends_[1][i], ++token_);
  }

  // All of its operations have ended when both sides know.
  void Close(size_t s, size_t i) {
    ++closes_;
    if (Pick(2) == 0) ends_[s][i].link->Abandon();
    ends_[s][i].link.reset();
    const int downs = ends_[1 - s][i].downs + 1;
    EXPECT_TRUE(RunUntil([&] { return ends_[1 - s][i].downs == downs; }));
    for (const auto& [key, job] : jobs_) EXPECT_NE(job->link, i);
    Open(i);
    for (size_t side = 0; side < 2; ++side) {
      for (size_t t = 0; t < kTargets; ++t) {
        if (!targets_[side][t]->known) Reclaim(side, t);
      }
    }
  }

  void Step() {
    sends_.at_once = Pick(4) == 0 ? 1 + Pick(200) : Pick(2) == 0 ? 1 + Pick(70'000) : 1 << 30;
    const size_t s = Pick(2);
    const size_t i = Pick(kLinks);
    const size_t what = Pick(100);
    if (what < 20) return SendBatch(s, i);
    if (what < 50) return Post(s, i);
    if (what < 53) return Reclaim(s, Pick(kTargets));
    if (what < 54) return Close(s, i);
    sides_[s].Poll();
  }

  // --- batches ----------------------------------------------------------------------------------

  // Each says which of its link it is.
  void SendBatch(size_t s, size_t i) {
    const bool wide = Pick(8) == 0;
    if (!ends_[s][i].link->HasRoom()) return;
    const std::string text = StrCat(i, ":", epochs_[i], ":", sent_[s][i], ":",
                                    std::string(Bytes(wide ? 60'000 : 8'000), '.'));
    const absl::Status status = sides_[s].Send(ends_[s][i], text, wide);
    if (status.code() == absl::StatusCode::kResourceExhausted) return;
    EXPECT_TRUE(status.ok()) << status;
    ++sent_[s][i];
    ++batches_;
  }

  void OnBatch(size_t s) {
    const std::string text = std::move(sides_[s].received.back());
    sides_[s].received.clear();
    size_t link = 0;
    unsigned epoch = 0, number = 0;
    ASSERT_EQ(std::sscanf(text.c_str(), "%zu:%u:%u:", &link, &epoch, &number), 3);
    ASSERT_LT(link, kLinks);
    EXPECT_EQ(epoch, epochs_[link]);
    EXPECT_EQ(number, arrived_[s][link]++);
    EXPECT_EQ(text.find_first_not_of('.', text.rfind(':') + 1), std::string::npos);
  }

  // --- operations -------------------------------------------------------------------------------

  // Of parts of some of the peer's targets; no byte twice.
  void Post(size_t s, size_t i) {
    auto job = std::make_unique<Job>();
    job->is_read = Pick(2) == 0;
    job->link = i;
    std::vector<Transfer> transfers;
    for (size_t tries = 1 + Pick(4); tries > 0; --tries) {
      Target* const target = targets_[1 - s][Pick(kTargets)].get();
      if (target->busy || !target->known) continue;
      target->busy = true;
      const size_t size = target->memory.size();
      size_t at = 0;
      for (size_t parts = 1 + Pick(16); parts > 0 && at < size; --parts) {
        Part& part = job->parts.emplace_back();
        part.target = target;
        part.offset = at + Pick(std::min<size_t>(200, size - at));
        part.data.resize(Bytes(size - part.offset));
        Fill(&part.data);
        at = part.offset + part.data.size();
        part.local = std::move(sides_[s].domain->Register(part.data, Access::kLocalOnly)).value();
        transfers.push_back(
            {part.local.get(), 0, target->region->remote().Slice(part.offset, part.data.size())});
      }
    }
    if (transfers.empty()) return;
    Job* const key = job.get();
    job->ended = [this, key](const absl::Status& status) { Ended(key, status); };
    const auto kind = job->is_read   ? TransferKind::kRead
                      : Pick(2) == 0 ? TransferKind::kWrite
                                     : TransferKind::kWriteUnordered;
    const auto posted = ends_[s][i].link->Post(kind, transfers, key);
    if (!posted.ok()) {
      EXPECT_EQ(posted.status().code(), absl::StatusCode::kResourceExhausted) << posted.status();
      for (const Part& part : job->parts) part.target->busy = false;
      ++no_room_;
      return;
    }
    ++begun_;
    jobs_[key] = std::move(job);
  }

  void Ended(Job* key, const absl::Status& status) {
    ASSERT_EQ(jobs_.count(key), 1u) << "an operation ended twice";
    const std::unique_ptr<Job> job = std::move(jobs_[key]);
    jobs_.erase(key);
    bool reclaimed = false;
    for (const Part& part : job->parts) {
      reclaimed = reclaimed || part.target->region == nullptr;
      part.target->busy = false;
      if (status.ok()) {
        Moved(*job, part);
      } else if (!job->is_read && part.target->region != nullptr) {
        part.target->known = false;  // some of it may have been written
      }
    }
    if (status.code() == absl::StatusCode::kPermissionDenied) {
      ++refused_;
      EXPECT_TRUE(reclaimed);
    } else if (!status.ok()) {
      EXPECT_TRUE(status.code() == absl::StatusCode::kCancelled ||
                  status.code() == absl::StatusCode::kUnavailable)
          << status;
    }
  }

  // A part of a job that has succeeded. Of memory that was reclaimed since, it is what was there.
  static void Moved(const Job& job, const Part& part) {
    Target& target = *part.target;
    const bool is_there = target.region != nullptr;
    const auto offset = static_cast<ptrdiff_t>(part.offset);
    if (job.is_read) {
      const std::vector<std::byte>& source = is_there ? target.expected : target.before;
      EXPECT_TRUE(std::equal(part.data.begin(), part.data.end(), source.begin() + offset));
    } else if (is_there) {
      std::copy(part.data.begin(), part.data.end(), target.expected.begin() + offset);
      EXPECT_TRUE(std::equal(part.data.begin(), part.data.end(), target.memory.begin() + offset))
          << "a write that has succeeded is there";
    }
  }

  Random random_;
  LimitedSends sends_;
  std::array<std::array<uint32_t, kLinks>, 2> sent_ = {};
  std::array<std::array<uint32_t, kLinks>, 2> arrived_ = {};
  std::array<uint32_t, kLinks> epochs_ = {};
  uint64_t token_ = 0;
  int begun_ = 0, refused_ = 0, no_room_ = 0, batches_ = 0, closes_ = 0;
  // Domains go behind their regions, and these behind all links.
  struct Sides {
    TcpSide a{Options()};
    TcpSide b{Options()};
    TcpSide& operator[](size_t s) { return s == 0 ? a : b; }
  };
  Sides sides_;
  std::array<std::array<std::unique_ptr<Target>, kTargets>, 2> targets_;
  std::vector<std::unique_ptr<Target>> retired_;
  std::map<Job*, std::unique_ptr<Job>> jobs_;
  std::array<std::array<LinkEnd, kLinks>, 2> ends_;
};

TEST(TcpRandomTest, WhateverHappensWhenAllIsAsTheModelHasIt) {
  for (int world = 0; world < 2 && !testing::Test::HasFailure(); ++world) {
    const uint64_t seed = TestSeed();
    SCOPED_TRACE(SeedTrace(seed));
    World(seed).Run();
  }
}

}  // namespace
}  // namespace weft
