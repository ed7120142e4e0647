// A file with rules that is watched, on a clock that the test moves.
#include "rpc/server/policy_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/log.h"

namespace weft {
namespace {

constexpr uint64_t kLook = PolicyFile::kLookIntervalNs;

class PolicyFileTest : public testing::Test {
 protected:
  PolicyFileTest() : folder_(testing::TempDir() + "policy_XXXXXX") {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/rules";
    SetLogSink([this](const LogRecord& record) { log_.emplace_back(record.text); });
  }
  ~PolicyFileTest() override {
    SetLogSink({});
    ::unlink(path_.c_str());
    ::rmdir(folder_.c_str());
  }

  // As it is to be replaced.
  void Write(const std::string& text) {
    const std::string other = path_ + ".new";
    std::ofstream(other, std::ios::binary) << text;
    ASSERT_EQ(std::rename(other.c_str(), path_.c_str()), 0);
  }
  void Open(const std::string& text) {
    Write(text);
    auto opened = PolicyFile::Open(path_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    policy_ = *std::move(opened);
    generation_ = policy_->Generation(now_ns_);
  }
  absl::Status ErrorOf(const std::string& path) { return PolicyFile::Open(path).status(); }

  // So much later: whether answers may have changed.
  bool HasChangedAfter(uint64_t ns) {
    now_ns_ += ns;
    const uint64_t before = generation_;
    generation_ = policy_->Generation(now_ns_);
    return generation_ != before;
  }
  bool MayCall(const std::string& method) {
    PathInfo path;
    path.identity.authentication = Authentication::kKernelCredentials;
    path.identity.user_id = 7;
    return policy_->Decide(path, "kv.Kv", method).allowed;
  }

  std::string folder_;
  std::string path_;
  std::unique_ptr<PolicyFile> policy_;
  uint64_t now_ns_ = kLook;
  uint64_t generation_ = 0;
  std::vector<std::string> log_;
};

TEST_F(PolicyFileTest, DecidesByItsRules) {
  Open("allow uid:7 kv.Kv/Get\n");
  EXPECT_TRUE(MayCall("Get"));
  EXPECT_FALSE(MayCall("Set"));
  EXPECT_EQ(policy_->RuleText(1), "line 1 of " + path_);
  EXPECT_EQ(policy_->RuleText(0), "no rule of " + path_ + " allows it");
}

TEST_F(PolicyFileTest, AChangedFileIsInUseAtTheNextLook) {
  Open("allow uid:7 kv.Kv/Get\n");
  EXPECT_FALSE(HasChangedAfter(kLook)) << "nothing has";
  Write("allow uid:7 kv.Kv/Set\n");
  EXPECT_FALSE(HasChangedAfter(kLook - 1)) << "too early to look";
  EXPECT_TRUE(MayCall("Get"));
  EXPECT_TRUE(HasChangedAfter(1));
  EXPECT_FALSE(MayCall("Get"));
  EXPECT_TRUE(MayCall("Set"));
  EXPECT_FALSE(HasChangedAfter(5 * kLook));
  EXPECT_EQ(log_,
            std::vector<std::string>{"policy file " + path_ + " has changed: 1 rules are in use"});
}

TEST_F(PolicyFileTest, ABrokenFileChangesNothingAndIsToldOnce) {
  Open("allow uid:7 kv.Kv/Get\n");
  Write("allow uid:7 kv.Kv/Set\nnonsense\n");
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(HasChangedAfter(kLook));
  EXPECT_TRUE(MayCall("Get"));
  EXPECT_FALSE(MayCall("Set"));
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_EQ(log_[0],
            "a changed policy file cannot be used, the old rules stay in use: policy file " +
                path_ +
                ": line 2: a rule has three words, \"allow|deny IDENTITY SERVICE/METHOD\"; this "
                "has fewer");
  Write("allow uid:7 kv.Kv/Set\n");
  EXPECT_TRUE(HasChangedAfter(kLook));
  EXPECT_TRUE(MayCall("Set"));
}

TEST_F(PolicyFileTest, AFileThatIsGoneChangesNothing) {
  Open("allow uid:7 kv.Kv/Get\n");
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(HasChangedAfter(kLook));
  EXPECT_TRUE(MayCall("Get"));
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_NE(log_[0].find("open policy file " + path_), std::string::npos) << log_[0];
  Write("");
  EXPECT_TRUE(HasChangedAfter(kLook));
  EXPECT_FALSE(MayCall("Get")) << "no rule permits it";
}

// The second of two changes within one tick of the file system's clock was never seen, where it
// left the size as it was.
TEST_F(PolicyFileTest, AChangeRightBehindAnotherIsSeen) {
  Open("allow uid:7 kv.Kv/Get\n");
  for (int i = 0; i < 20; ++i) {
    const bool get = i % 2 == 1;
    // In place, so that the inode stays as well.
    std::ofstream(path_, std::ios::binary)
        << (get ? "allow uid:7 kv.Kv/Get\n" : "allow uid:7 kv.Kv/Set\n");
    ASSERT_TRUE(HasChangedAfter(kLook)) << i;
    ASSERT_EQ(MayCall("Get"), get);
  }
  EXPECT_FALSE(HasChangedAfter(kLook)) << "what is read again and is the same is no change";
}

// Whoever looked held a lock that every decision needs; a second later another engine looked, too,
// and waited as well.
TEST_F(PolicyFileTest, WhileOneEngineLooksTheOthersGoOn) {
  Open("allow uid:7 kv.Kv/Get\n");
  bool looked = false;
  SetLogSink([&](const LogRecord&) {  // the first engine is still in its look
    looked = true;
    Write("allow uid:7 kv.Kv/Delete\n");
    const uint64_t before = policy_->Generation(now_ns_);
    EXPECT_EQ(policy_->Generation(now_ns_ + 10 * kLook), before) << "a second engine looks as well";
    EXPECT_TRUE(MayCall("Set"));
  });
  Write("allow uid:7 kv.Kv/Set\n");
  EXPECT_TRUE(HasChangedAfter(kLook));
  EXPECT_TRUE(looked);
  SetLogSink({});
  EXPECT_TRUE(HasChangedAfter(kLook));
  EXPECT_TRUE(MayCall("Delete"));
}

TEST_F(PolicyFileTest, ErrorsNameTheFileAndTheLine) {
  const absl::Status missing = ErrorOf(path_);
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_NE(missing.message().find(path_), absl::string_view::npos) << missing;
  Write("allow uid:7 *\n\nallow 7 *\n");
  const absl::Status wrong = ErrorOf(path_);
  EXPECT_TRUE(absl::IsInvalidArgument(wrong)) << wrong;
  EXPECT_NE(wrong.message().find("policy file " + path_ + ": line 3: \"7\" names nobody"),
            absl::string_view::npos)
      << wrong;
}

// Of a pipe, open(2) and read(2) would wait for somebody to write.
TEST_F(PolicyFileTest, WhatIsNoFileOrTooLargeIsRefused) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const std::string no_file = "policy file " + path_ + " is no regular file";
  EXPECT_EQ(ErrorOf(path_), absl::InvalidArgumentError(no_file));
  EXPECT_EQ(ErrorOf(folder_),
            absl::InvalidArgumentError("policy file " + folder_ + " is no regular file"));
  Write(std::string(AccessPolicy::kMaxBytes + 100, '\n'));
  EXPECT_EQ(ErrorOf(path_),
            absl::InvalidArgumentError("policy file " + path_ + " has more than 262144 bytes"));
}

// Forgotten rules look like a service that is broken.
TEST_F(PolicyFileTest, RulesThatPermitNothingAreSaidSo) {
  Open("# nothing yet\n");
  EXPECT_TRUE(policy_->PermitsNothing());
  ASSERT_FALSE(log_.empty());
  EXPECT_NE(log_.back().find("permits nothing to anybody"), std::string::npos) << log_.back();
  Write("allow uid:7 kv.Kv/Get\n");
  EXPECT_TRUE(HasChangedAfter(kLook));
  EXPECT_FALSE(policy_->PermitsNothing());
  EXPECT_EQ(log_.back().find("permits nothing"), std::string::npos) << log_.back();
  Write("deny uid:7 kv.Kv/Get\n");
  EXPECT_TRUE(HasChangedAfter(kLook));
  EXPECT_NE(log_.back().find("permits nothing to anybody"), std::string::npos) << log_.back();
}

}  // namespace
}  // namespace weft
