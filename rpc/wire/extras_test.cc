// Extras on the wire: what goes in comes out, and what a hostile peer makes up is refused.
#include "rpc/wire/extras.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/cord.h"
#include "rpc/wire/extras.pb.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/status_text.h"

namespace weft {
namespace {

ByteSpan BytesOf(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

bool Decodes(const rpc::Extras& extras, bool of_an_error) {
  const std::string encoded = extras.SerializeAsString();
  Metadata metadata;
  absl::Status error = absl::InternalError("");
  return DecodeExtras(BytesOf(encoded), &metadata, of_an_error ? &error : nullptr);
}

TEST(ExtrasTest, MetadataAndDetailsComeBack) {
  Metadata sent;
  ASSERT_TRUE(sent.Add("user", "anna").ok());
  ASSERT_TRUE(sent.Add("id-bin", std::string("\0\1", 2)).ok());
  absl::Status error = absl::NotFoundError("no");
  error.SetPayload("example.Detail", absl::Cord("why"));
  const std::string encoded = EncodeExtras(sent, error);

  Metadata received;
  absl::Status rebuilt = absl::NotFoundError("no");
  ASSERT_TRUE(DecodeExtras(BytesOf(encoded), &received, &rebuilt));
  EXPECT_EQ(*received.Find("user"), "anna");
  EXPECT_EQ(*received.Find("id-bin"), std::string("\0\1", 2));
  EXPECT_EQ(rebuilt, error);
}

TEST(ExtrasTest, TheNameOfACallThatRunsExactlyOnceComesBackWhereItMayStand) {
  const OnceAttempt sent = {{{1, 2}, 7}, 5};
  const std::string encoded = EncodeExtras({}, {}, &sent);
  Metadata metadata;
  OnceExtras once;
  ASSERT_TRUE(DecodeExtras(BytesOf(encoded), &metadata, /*details=*/nullptr, &once));
  ASSERT_TRUE(once.attempt.has_value());
  EXPECT_EQ(once.attempt->id, sent.id);
  EXPECT_EQ(once.attempt->first_unanswered, 5u);
  EXPECT_FALSE(once.outcome_unknown);
  EXPECT_FALSE(DecodeExtras(BytesOf(encoded), &metadata, /*details=*/nullptr));
}

TEST(ExtrasTest, AnUnknownOutcomeIsAnErrors) {
  const std::string encoded = EncodeExtras({}, OutcomeUnknownError("it has expired"));
  Metadata metadata;
  OnceExtras once;
  absl::Status error = absl::AbortedError("");
  ASSERT_TRUE(DecodeExtras(BytesOf(encoded), &metadata, &error, &once));
  EXPECT_TRUE(once.outcome_unknown);
  EXPECT_FALSE(IsOutcomeUnknown(error)) << "it is for Weft itself";
  EXPECT_FALSE(DecodeExtras(BytesOf(encoded), &metadata, /*details=*/nullptr, &once));
  EXPECT_FALSE(DecodeExtras(BytesOf(encoded), &metadata, &error));
}

TEST(ExtrasTest, NothingToSayIsNoBytes) {
  absl::Status error = absl::NotFoundError("no");
  error.SetPayload("weft.delivery", absl::Cord("not_sent"));
  EXPECT_EQ(EncodeExtras({}, error), "") << "what is Weft's own does not travel";
}

TEST(ExtrasTest, DetailsThatDoNotFitStayBehindAndOthersTravel) {
  absl::Status error = absl::NotFoundError("no");
  error.SetPayload("example.Huge", absl::Cord(std::string(kMaxMetadataBytes, 'x')));
  error.SetPayload("example.Small", absl::Cord("y"));
  absl::Status rebuilt = absl::NotFoundError("no");
  Metadata metadata;
  ASSERT_TRUE(DecodeExtras(BytesOf(EncodeExtras({}, error)), &metadata, &rebuilt));
  EXPECT_FALSE(rebuilt.GetPayload("example.Huge").has_value());
  EXPECT_TRUE(rebuilt.GetPayload("example.Small").has_value());
}

TEST(ExtrasTest, TheMostThatCanBeSaidFits) {
  Metadata metadata;
  while (metadata.Add("k", "").ok()) {
  }
  absl::Status error = absl::NotFoundError("no");
  error.SetPayload("e", absl::Cord(std::string(kMaxMetadataBytes - 1 - kMetadataEntryBytes, 'x')));
  const std::string encoded = EncodeExtras(metadata, error);
  EXPECT_LE(encoded.size(), kMaxExtrasBytes);
  Metadata received;
  absl::Status rebuilt = absl::NotFoundError("no");
  ASSERT_TRUE(DecodeExtras(BytesOf(encoded), &received, &rebuilt));
  EXPECT_EQ(received.size(), metadata.size());
  EXPECT_EQ(rebuilt, error);
}

TEST(ExtrasTest, AHostilePeersExtrasAreRefused) {
  rpc::Extras extras;
  extras.add_metadata()->set_key("Upper");
  EXPECT_FALSE(Decodes(extras, true)) << "a key that is none";

  extras.Clear();
  extras.add_metadata()->set_key("k");
  extras.mutable_metadata(0)->set_value("\n");
  EXPECT_FALSE(Decodes(extras, true)) << "a value that is none";

  extras.Clear();
  for (size_t i = 0; i <= kMaxMetadataBytes / kMetadataEntryBytes; ++i) {
    extras.add_metadata()->set_key("k");
  }
  EXPECT_FALSE(Decodes(extras, true)) << "more entries than the limit lets in";

  extras.Clear();
  extras.add_details()->set_key("example.Detail");
  EXPECT_TRUE(Decodes(extras, true));
  EXPECT_FALSE(Decodes(extras, false)) << "details of what is no error";

  extras.mutable_details(0)->set_key("weft.not_run");
  EXPECT_FALSE(Decodes(extras, true)) << "a payload that is Weft's own";
  extras.mutable_details(0)->set_key("");
  EXPECT_FALSE(Decodes(extras, true)) << "a payload without a type";
  extras.mutable_details(0)->set_key("d");
  extras.mutable_details(0)->set_value(std::string(kMaxMetadataBytes, 'x'));
  EXPECT_FALSE(Decodes(extras, true)) << "details beyond their limit";

  Metadata metadata;
  EXPECT_FALSE(DecodeExtras(BytesOf("\xff\xff"), &metadata, nullptr)) << "no protobuf";
  const std::string long_one(kMaxExtrasBytes + 1, '\0');
  EXPECT_FALSE(DecodeExtras(BytesOf(long_one), &metadata, nullptr));
}

// --- their place in a frame ----------------------------------------------------------------------

std::vector<std::byte> Block(std::string_view extras) {
  std::vector<std::byte> block(ExtrasBlockBytes(extras.size()), std::byte{0xee});
  EncodeExtrasBlock(extras, block.data());
  return block;
}

TEST(ExtrasBlockTest, HasItsBytesAndZerosUpToEight) {
  const std::vector<std::byte> block = Block("abc");
  ASSERT_EQ(block.size(), 16u);
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(block.data()), block.size()),
            std::string_view("\3\0\0\0\0\0\0\0abc\0\0\0\0\0", 16));
}

TEST(ExtrasBlockTest, LeavesTheBodyBehindIt) {
  for (size_t bytes : {1, 7, 8, 9, 4096}) {
    std::vector<std::byte> block = Block(std::string(bytes, 'x'));
    block.push_back(std::byte{'b'});
    ByteSpan body = block;
    ByteSpan extras;
    ASSERT_TRUE(DecodeExtrasBlock(&body, &extras)) << bytes;
    EXPECT_EQ(extras.size(), bytes);
    ASSERT_EQ(body.size(), 1u) << bytes;
    EXPECT_EQ(body[0], std::byte{'b'});
  }
}

TEST(ExtrasBlockTest, IsRefusedCutAnywhereAndWithAnyFieldWrong) {
  const std::vector<std::byte> good = Block("abc");
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    ByteSpan body = ByteSpan(good).first(bytes);
    ByteSpan extras;
    EXPECT_FALSE(DecodeExtrasBlock(&body, &extras)) << bytes;
  }
  for (size_t at : {0, 4, 7, 11, 15}) {  // the length, what is reserved, what fills up
    std::vector<std::byte> bad = good;
    bad[at] = at == 0 ? std::byte{0} : std::byte{1};
    ByteSpan body = bad;
    ByteSpan extras;
    EXPECT_FALSE(DecodeExtrasBlock(&body, &extras)) << at;
  }
  std::vector<std::byte> large(ExtrasBlockBytes(kMaxExtrasBytes + 1));
  StoreLe32(large.data(), kMaxExtrasBytes + 1);
  ByteSpan body = large;
  ByteSpan extras;
  EXPECT_FALSE(DecodeExtrasBlock(&body, &extras));
}

}  // namespace
}  // namespace weft
