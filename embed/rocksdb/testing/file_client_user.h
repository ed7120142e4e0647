// A FileClient as its tests use it, whichever way it goes to its server: a part of their fixtures,
// which start the server, and connect.
//
// Threads: one. Lifetime: a fixture's destructor ends client_ before its server.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "embed/rocksdb/file_client.h"
#include "embed/rocksdb/file_limits.h"
#include "embed/rocksdb/testing/file_server.h"

namespace weft::embed {

class FileClientUser {
 protected:
  using Mode = FileClient::Mode;

  // `folder`: the name of what is served.
  explicit FileClientUser(const std::string& folder) : files_(folder) {}

  // Bytes that differ from place to place.
  static std::string Text(size_t bytes) {
    std::string text(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + (i * i + i / 251) % 26);
    return text;
  }

  std::unique_ptr<FileClient::File> Open(const std::string& name, Mode mode) {
    auto file = client_->OpenFile(name, mode);
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  std::string Read(FileClient::File& file, uint64_t offset, size_t bytes) {
    std::string text(bytes, '?');
    const auto got =
        client_->Read(file, offset, {reinterpret_cast<std::byte*>(text.data()), text.size()});
    EXPECT_TRUE(got.ok()) << got.status();
    return text.substr(0, got.value_or(0));
  }

  // --- what holds on each way -------------------------------------------------------------------

  void WriteAndReadFilesOfAllSizes() {
    for (const size_t bytes : {size_t{0}, size_t{1}, kMaxInlineFileBytes, kMaxInlineFileBytes + 1,
                               kMaxFilePayloadBytes, 3 * kMaxFilePayloadBytes + 7}) {
      const std::string text = Text(bytes);
      const auto writes = Open("file", Mode::kWriteNew);
      ASSERT_TRUE(client_->Append(*writes, AsBytes(text)).ok());
      ASSERT_TRUE(client_->Sync(*writes).ok());
      EXPECT_EQ(writes->bytes(), bytes);
      EXPECT_EQ(files_.Content("file"), text);
      ASSERT_TRUE(client_->Close(*writes).ok());
      const auto reads = Open("file", Mode::kRead);
      EXPECT_EQ(Read(*reads, 0, bytes + 10), text);
      const size_t last = bytes == 0 ? 0 : bytes - 1;
      EXPECT_EQ(Read(*reads, last, 10), text.substr(last));
      EXPECT_EQ(Read(*reads, bytes + 5, 10), "");
    }
  }

  // Pieces of a table, of all sizes, and some behind its end; `restart` starts the server again
  // between two of the rounds.
  void ReadManyAtOnce(int rounds, absl::FunctionRef<void()> restart) {
    const std::string text = Text(5 << 20);
    files_.Put("table", text);
    const auto file = Open("table", Mode::kRead);
    for (int round = 0; round < rounds; ++round) {
      std::vector<std::string> texts(150);
      std::vector<PieceToRead> pieces(texts.size());
      for (size_t i = 0; i < texts.size(); ++i) {
        texts[i].resize(i == 3 ? (3 << 20) : 10 + 300 * i, '?');
        pieces[i].offset = i * 40'000;
        pieces[i].into = {reinterpret_cast<std::byte*>(texts[i].data()), texts[i].size()};
      }
      client_->ReadMany(*file, absl::MakeSpan(pieces));
      for (size_t i = 0; i < texts.size(); ++i) {
        ASSERT_TRUE(pieces[i].status.ok()) << pieces[i].status;
        const std::string want =
            pieces[i].offset > text.size() ? "" : text.substr(pieces[i].offset, texts[i].size());
        ASSERT_EQ(texts[i].substr(0, pieces[i].got), want) << i;
      }
      if (round == rounds / 2) restart();
    }
  }

  TestFolder files_;
  std::unique_ptr<FileClient> client_;
};

}  // namespace weft::embed
