#include "examples/fileshare/client/remote_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>

#include "core/function.h"
#include "core/strings.h"
#include "examples/fileshare/client/copy.h"
#include "weft/channel.h"
#include "weft/engine.h"
#include "weft/server.h"
#include "weft/service.h"

namespace fileshare::client {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A server that lists what it likes.
class LyingService final : public FileShare::Service {
 public:
  weft::Function<void(const ListRequest&, ListReply*)> tell;
  std::atomic<int> asked{0};

 private:
  absl::Status Stat(weft::ServerContext&, const StatRequest&, StatReply* reply) override {
    reply->mutable_attributes()->set_is_folder(true);
    return absl::OkStatus();
  }
  absl::Status List(weft::ServerContext&, const ListRequest& request, ListReply* reply) override {
    ++asked;
    tell(request, reply);
    return absl::OkStatus();
  }
};

class LyingServerTest : public testing::Test {
 protected:
  LyingServerTest() {
    EXPECT_TRUE(server_->AddService(&service_).ok());
    EXPECT_TRUE(server_->Listen("127.0.0.1:0").ok());
    engine_ = *weft::OpenNetworkEngine({});
    channel_ = *weft::Channel::Open(*engine_, server_->address());
  }

  // What a list of a folder ends with; `visited` entries have come by then.
  absl::Status List(uint64_t max_entries) {
    const RemoteFolder remote(*channel_, {.max_entries = max_entries});
    visited_ = 0;
    return remote.ForEach("folder", [this](const Entry&) {
      ++visited_;
      return absl::OkStatus();
    });
  }

  LyingService service_;
  const std::unique_ptr<weft::Server> server_ = *weft::Server::Create();
  std::unique_ptr<weft::Engine> engine_;
  std::unique_ptr<weft::Channel> channel_;
  uint64_t visited_ = 0;
};

// A client went on for as long as its server had names, and made a file here for each.
TEST_F(LyingServerTest, AFolderThatHasNoEndIsGivenUp) {
  service_.tell = [last = 1000](const ListRequest&, ListReply* reply) mutable {
    for (int i = 0; i < 10; ++i) reply->add_entries()->set_name(std::to_string(++last));
    reply->set_more(true);
  };
  const absl::Status listed = List(/*max_entries=*/95);
  EXPECT_TRUE(absl::IsResourceExhausted(listed)) << listed;
  EXPECT_THAT(listed.ToString(), HasSubstr("\"folder\" has more than 95 files and folders"));
  EXPECT_EQ(visited_, 95u);
}

TEST_F(LyingServerTest, AFolderOfAsManyAsThereMayBeIsListed) {
  service_.tell = [](const ListRequest& request, ListReply* reply) {
    const bool is_first = request.after().empty();
    for (int i = 0; i < 5; ++i) {
      reply->add_entries()->set_name(weft::StrCat(is_first ? "a" : "b", i));
    }
    reply->set_more(is_first);
  };
  const absl::Status listed = List(/*max_entries=*/10);
  EXPECT_TRUE(listed.ok()) << listed;
  EXPECT_EQ(visited_, 10u);
}

TEST_F(LyingServerTest, ListsThatNoServerTellsAreRefused) {
  service_.tell = [](const ListRequest&, ListReply* reply) { reply->set_more(true); };
  EXPECT_TRUE(absl::IsDataLoss(List(100))) << "nothing, and more of it";
  service_.tell = [](const ListRequest&, ListReply* reply) {
    reply->add_entries()->set_name("again");
    reply->set_more(true);
  };
  EXPECT_TRUE(absl::IsDataLoss(List(100))) << "the same name for ever";
  service_.tell = [](const ListRequest&, ListReply* reply) {
    for (size_t i = 0; i <= kMaxListEntries; ++i) {
      reply->add_entries()->set_name(std::to_string(10'000 + i));
    }
  };
  EXPECT_TRUE(absl::IsDataLoss(List(10'000))) << "more than one reply has";
  for (const char* name : {"", ".", "..", "a/b", "/"}) {
    service_.tell = [name](const ListRequest&, ListReply* reply) {
      reply->add_entries()->set_name(name);
    };
    EXPECT_TRUE(absl::IsDataLoss(List(100))) << name;
  }
}

// Each folder has another one in it: a copy had their paths in memory, of all that were still to be
// listed, and ends where no path leads any further.
TEST_F(LyingServerTest, ATreeThatHasNoEndIsGivenUp) {
  service_.tell = [](const ListRequest&, ListReply* reply) {
    for (const char* name : {"a", "b"}) {
      ListReply::Entry* const entry = reply->add_entries();
      entry->set_name(name);
      entry->mutable_attributes()->set_is_folder(true);
      entry->mutable_attributes()->set_mode(0700);
    }
  };
  const fs::path local = fs::path(testing::TempDir()) / "remote_folder_test";
  fs::remove_all(local);
  const RemoteFolder remote(*channel_, {});
  const auto copied = CopyFromServer(remote, "tree", local, {.outstanding = 1});
  EXPECT_TRUE(absl::IsInvalidArgument(copied.status())) << copied.status();
  EXPECT_LE(service_.asked.load(), 129);
  fs::remove_all(local);
}

}  // namespace
}  // namespace fileshare::client
