// The store against a model that is too simple to be wrong, and its limits one by one.
#include "examples/kv/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/strings.h"

namespace kv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

using Contents = std::vector<std::pair<std::string, std::string>>;  // name, value

Contents ContentsOf(const Record& record) {
  Contents contents;
  for (const FieldView& field : record) contents.emplace_back(field.name, field.value);
  return contents;
}

std::vector<FieldView> Views(const Contents& contents) {
  std::vector<FieldView> views;
  for (const auto& [name, value] : contents) views.push_back({name, value});
  return views;
}

// A small language over one store.
class StoreTest : public testing::Test {
 protected:
  absl::Status Put(std::string_view key, const Contents& contents) {
    return store_.Replace(key, Views(contents)).status();
  }
  absl::Status Put(std::string_view key, const std::string& value) {
    return Put(key, Contents{{"", value}});
  }
  absl::Status Update(std::string_view key, const Contents& contents) {
    return store_.Update(key, Views(contents));
  }
  std::optional<Contents> Get(std::string_view key) const {
    const Record* record = store_.Get(key);
    return record == nullptr ? std::nullopt : std::optional(ContentsOf(*record));
  }
  std::vector<std::string> KeysFrom(std::string_view start) const {
    std::vector<std::string> keys;
    store_.Scan(start, [&](std::string_view key, const Record&) {
      keys.emplace_back(key);
      return true;
    });
    return keys;
  }

  Store store_;
};

TEST_F(StoreTest, GivesBackWhatWasPut) {
  ASSERT_TRUE(Put("key", {{"a", "1"}, {"b", ""}, {"", "nameless"}}).ok());
  EXPECT_THAT(*Get("key"), ElementsAre(Pair("a", "1"), Pair("b", ""), Pair("", "nameless")));
  EXPECT_EQ(Get("kex"), std::nullopt);
}

TEST_F(StoreTest, KeysAndValuesAreBytesNotText) {
  const std::string key("\0\xff\n", 3);
  ASSERT_TRUE(Put(key, std::string(3, '\0')).ok());
  EXPECT_THAT(*Get(key), ElementsAre(Pair("", std::string(3, '\0'))));
}

TEST_F(StoreTest, ReplaceSaysWhetherTheRecordIsNew) {
  EXPECT_TRUE(*store_.Replace("key", Views({{"a", "1"}})));
  EXPECT_FALSE(*store_.Replace("key", Views({{"b", "2"}})));
  EXPECT_THAT(*Get("key"), ElementsAre(Pair("b", "2")));
}

TEST_F(StoreTest, ARecordMayHaveNoFields) {
  ASSERT_TRUE(Put("key", Contents{}).ok());
  EXPECT_THAT(*Get("key"), IsEmpty());
}

TEST_F(StoreTest, UpdateChangesTheNamedFieldsOnly) {
  ASSERT_TRUE(Put("key", {{"a", "1"}, {"b", "2"}, {"c", "3"}}).ok());
  ASSERT_TRUE(Update("key", {{"b", "a longer one"}, {"d", "new"}}).ok());
  EXPECT_THAT(*Get("key"), ElementsAre(Pair("a", "1"), Pair("b", "a longer one"), Pair("c", "3"),
                                       Pair("d", "new")));
  ASSERT_TRUE(Update("key", {{"b", ""}}).ok());
  EXPECT_THAT(*Get("key"),
              ElementsAre(Pair("a", "1"), Pair("b", ""), Pair("c", "3"), Pair("d", "new")));
}

TEST_F(StoreTest, UpdateOfNothingIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(Update("key", {{"a", "1"}})));
  EXPECT_EQ(Get("key"), std::nullopt);
}

TEST_F(StoreTest, DeleteSaysWhetherThereWasOne) {
  ASSERT_TRUE(Put("key", "value").ok());
  EXPECT_TRUE(store_.Delete("key"));
  EXPECT_FALSE(store_.Delete("key"));
  EXPECT_EQ(store_.bytes(), 0u);
}

TEST_F(StoreTest, ScanIsInByteOrderFromTheStartKeyOn) {
  for (const char* key : {"b", "a", "\xff", "ab", "B"}) ASSERT_TRUE(Put(key, "").ok());
  EXPECT_THAT(KeysFrom(""), ElementsAre("B", "a", "ab", "b", "\xff"));
  EXPECT_THAT(KeysFrom("ab"), ElementsAre("ab", "b", "\xff"));
  EXPECT_THAT(KeysFrom(std::string("ab\0", 3)), ElementsAre("b", "\xff"));
  EXPECT_THAT(KeysFrom("\xff\xff"), IsEmpty());
}

TEST_F(StoreTest, ScanEndsWhenTheVisitorHasEnough) {
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(Put(key, "").ok());
  int visited = 0;
  store_.Scan("", [&](std::string_view, const Record&) { return ++visited < 2; });
  EXPECT_EQ(visited, 2);
}

TEST_F(StoreTest, BothFirstAndLastAllowedSizesAreTaken) {
  const StoreLimits limits;
  EXPECT_TRUE(Put("k", "").ok());
  EXPECT_TRUE(Put(std::string(limits.max_key_bytes, 'k'), "").ok());
  EXPECT_TRUE(Put("k", {{std::string(limits.max_name_bytes, 'n'), ""}}).ok());
  EXPECT_TRUE(Put("k", std::string(limits.max_record_bytes, 'v')).ok());
}

TEST_F(StoreTest, WhatExceedsALimitIsInvalidAndChangesNothing) {
  const StoreLimits limits;
  ASSERT_TRUE(Put("k", "before").ok());
  const Contents too_many = [&] {
    Contents fields;
    for (size_t i = 0; i <= limits.max_record_fields; ++i) {
      fields.emplace_back(weft::StrCat(i), "");
    }
    return fields;
  }();
  for (const absl::Status& status : {
           Put("", "value"),
           Put(std::string(limits.max_key_bytes + 1, 'k'), "value"),
           Put("k", {{std::string(limits.max_name_bytes + 1, 'n'), ""}}),
           Put("k", std::string(limits.max_record_bytes + 1, 'v')),
           Put("k", too_many),
           Update("k", {{"more", std::string(limits.max_record_bytes, 'v')}}),
       }) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  EXPECT_THAT(*Get("k"), ElementsAre(Pair("", "before")));
  store_.CheckInvariants();
}

TEST_F(StoreTest, ARepeatedNameIsInvalidAmongFewFieldsAndAmongMany) {
  EXPECT_TRUE(absl::IsInvalidArgument(Put("k", {{"a", "1"}, {"b", "2"}, {"a", "3"}})));
  Contents fields;
  for (int i = 0; i < 100; ++i) fields.emplace_back(weft::StrCat(i), "");
  EXPECT_TRUE(Put("k", fields).ok());
  fields.emplace_back("42", "");
  EXPECT_TRUE(absl::IsInvalidArgument(Put("k", fields)));
}

TEST_F(StoreTest, UpdatesCannotGrowARecordBeyondItsFields) {
  const StoreLimits limits;
  ASSERT_TRUE(Put("k", Contents{}).ok());
  for (size_t i = 0; i < limits.max_record_fields; ++i) {
    ASSERT_TRUE(Update("k", {{weft::StrCat(i), "x"}}).ok());
  }
  EXPECT_TRUE(Update("k", {{"0", "again"}}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Update("k", {{"one more", ""}})));
}

TEST(StoreRoomTest, AFullStoreRefusesUntilSomethingIsDeleted) {
  StoreLimits limits;
  limits.max_bytes = 4096;
  Store store(limits);
  const std::string value(1000, 'v');
  const FieldView field[] = {{"", value}};
  int stored = 0;
  absl::Status status;
  while (status.ok()) {
    status = store.Replace(weft::StrCat("key", stored), field).status();
    stored += status.ok();
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(stored, 3);
  store.CheckInvariants();

  // What is there can still be replaced and read.
  EXPECT_TRUE(store.Replace("key0", field).ok());
  EXPECT_TRUE(store.Delete("key1"));
  EXPECT_TRUE(store.Replace("another", field).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(store.Update("another", {{"b", value}})));
  store.CheckInvariants();
}

// The same random steps on the store and on a std::map: they never differ.
class Model {
 public:
  explicit Model(uint64_t seed) : random_(seed) {}

  void Step() {
    switch (random_.Uniform(8)) {
      case 0:
      case 1:
        return Replace();
      case 2:
      case 3:
        return Update();
      case 4:
        return Delete();
      case 5:
        return Scan();
      default:
        return Get();
    }
  }
  void CheckInvariants() const {
    store_.CheckInvariants();
    EXPECT_EQ(store_.size(), model_.size());
  }

 private:
  // Few enough keys and names that steps meet.
  std::string Key() { return std::string(1 + random_.Uniform(3), char('a' + random_.Uniform(6))); }
  std::string Value() { return std::string(random_.Uniform(40), char('a' + random_.Uniform(26))); }
  Contents SomeFields() {
    Contents fields;
    for (const char* name : {"", "f1", "f2", "f3"}) {
      if (random_.Chance(0.5)) fields.emplace_back(name, Value());
    }
    return fields;
  }

  void Replace() {
    const std::string key = Key();
    const Contents fields = SomeFields();
    EXPECT_EQ(*store_.Replace(key, Views(fields)), model_.count(key) == 0);
    model_[key] = fields;
  }
  void Update() {
    const std::string key = Key();
    const Contents fields = SomeFields();
    const absl::Status status = store_.Update(key, Views(fields));
    const auto found = model_.find(key);
    ASSERT_EQ(status.ok(), found != model_.end()) << status;
    if (found == model_.end()) return;
    for (const auto& [name, value] : fields) Set(found->second, name, value);
  }
  static void Set(Contents& contents, const std::string& name, const std::string& value) {
    for (auto& [old_name, old_value] : contents) {
      if (old_name == name) {
        old_value = value;
        return;
      }
    }
    contents.emplace_back(name, value);
  }
  void Delete() {
    const std::string key = Key();
    EXPECT_EQ(store_.Delete(key), model_.erase(key) == 1);
  }
  void Get() {
    const std::string key = Key();
    const Record* record = store_.Get(key);
    ASSERT_EQ(record != nullptr, model_.count(key) == 1);
    if (record == nullptr) return;
    EXPECT_EQ(ContentsOf(*record), model_[key]);
  }
  void Scan() {
    const std::string start = Key();
    auto expected = model_.lower_bound(start);
    store_.Scan(start, [&](std::string_view key, const Record& record) {
      EXPECT_NE(expected, model_.end());
      if (expected == model_.end()) return false;
      EXPECT_EQ(key, expected->first);
      EXPECT_EQ(ContentsOf(record), expected->second);
      ++expected;
      return true;
    });
    EXPECT_EQ(expected, model_.end());
  }

  weft::Random random_;
  Store store_;
  std::map<std::string, Contents> model_;
};

TEST(StoreModelTest, TwentyThousandRandomStepsAgreeWithAMap) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    SCOPED_TRACE(weft::StrCat("seed ", seed));
    Model model(seed);
    for (int step = 0; step < 5000; ++step) {
      model.Step();
      if (step % 100 == 0) model.CheckInvariants();
      if (testing::Test::HasFailure()) return;
    }
    model.CheckInvariants();
  }
}

}  // namespace
}  // namespace kv
