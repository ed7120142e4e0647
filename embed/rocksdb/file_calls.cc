#include "embed/rocksdb/file_calls.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "core/status.h"
#include "embed/rocksdb/file.weft.h"
#include "embed/rocksdb/file_limits.h"
#include "embed/session_client.h"
#include "weft/bulk.h"
#include "weft/engine.h"
#include "weft/memory.h"
#include "weft/stream.h"

namespace weft::embed {
namespace {

// One read by a call: up to kMaxFilePayloadBytes.
class CallToRead {
 public:
  CallToRead(Channel& channel, uint64_t session, uint64_t handle, PieceToRead& piece, bool crc32c)
      : channel_(channel), piece_(piece) {
    request_.set_session(session);
    request_.set_handle(handle);
    request_.set_offset(piece.offset);
    request_.set_bytes(static_cast<uint32_t>(piece.into.size()));
    request_.set_without_crc32c(!crc32c);
  }

  void Run(const wire::Files::Stub& stub, CallOptions options) {
    absl::Status status = LendMemory(&options);
    if (status.ok()) status = stub.Read(request_, &reply_, options);
    OnEnd(std::move(status));
  }

  // Sends it; it is over when is_over() says so, in a turn of the engine.
  void Start(const wire::Files::Stub& stub, CallOptions options) {
    absl::Status status = LendMemory(&options);
    if (!status.ok()) return OnEnd(std::move(status));
    stub.Read(request_, &reply_, options,
              [this](absl::Status status) { OnEnd(std::move(status)); });
  }
  bool is_over() const { return is_over_; }
  // REQUIRES: is_over(), or Run() has returned.
  void Finish() {
    const absl::StatusOr<size_t> got = Take();
    piece_.got = got.value_or(0);
    piece_.status = got.status();
  }

 private:
  void OnEnd(absl::Status status) {
    status_ = std::move(status);
    is_over_ = true;
  }
  absl::Status LendMemory(CallOptions* options) {
    if (piece_.into.size() <= kMaxInlineFileBytes) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(buffer_, channel_.AllocateBuffer(piece_.into.size()));
    bulk_.emplace(channel_);
    bulk_->Receive(buffer_->slice());
    options->bulk = &*bulk_;
    return absl::OkStatus();
  }
  absl::StatusOr<size_t> Take() {
    WEFT_RETURN_IF_ERROR(status_);
    ByteSpan data = AsBytes(reply_.inline_data());
    if (bulk_.has_value()) {
      WEFT_ASSIGN_OR_RETURN(data, bulk_->Received(reply_.lent_data()));
    }
    if (data.size() > piece_.into.size()) return WrongReply("more bytes than were asked for");
    if (!data.empty()) std::memcpy(piece_.into.data(), data.data(), data.size());
    return data.size();
  }

  Channel& channel_;
  PieceToRead& piece_;
  wire::ReadRequest request_;
  wire::ReadReply reply_;
  std::unique_ptr<Buffer> buffer_;
  std::optional<BulkCall> bulk_;
  absl::Status status_;
  bool is_over_ = false;
};

class WeftFileCalls final : public FileCalls {
 public:
  WeftFileCalls(std::unique_ptr<Channel> channel, bool crc32c)
      : channel_(std::move(channel)), stub_(*channel_), crc32c_(crc32c) {}

  // The earlier session's stream goes first: the server need not wait for it.
  absl::StatusOr<wire::AttachReply> Attach(const wire::AttachRequest& request,
                                           uint64_t timeout_us) override {
    session_.reset();
    auto stream = stub_.Attach(request, {});
    auto reply = FirstReply(*channel_, stream, timeout_us);
    if (reply.ok()) session_.emplace(std::move(stream));
    return reply;
  }

  absl::Status Open(const wire::OpenRequest& request, wire::OpenReply* reply,
                    uint64_t timeout_us) override {
    return stub_.Open(request, reply, {.timeout_us = timeout_us});
  }
  void Close(const wire::CloseRequest& request, uint64_t timeout_us) override {
    auto reply = std::make_shared<wire::CloseReply>();
    stub_.Close(request, reply.get(), {.timeout_us = timeout_us}, [reply](const absl::Status&) {});
  }
  void Read(uint64_t session, uint64_t handle, absl::Span<PieceToRead* const> pieces,
            uint64_t timeout_us) override {
    const CallOptions options = {.timeout_us = timeout_us};
    if (pieces.size() == 1) {
      CallToRead call(*channel_, session, handle, *pieces[0], crc32c_);
      call.Run(stub_, options);
      return call.Finish();
    }
    std::deque<CallToRead> calls;
    for (PieceToRead* const piece : pieces) {
      calls.emplace_back(*channel_, session, handle, *piece, crc32c_).Start(stub_, options);
    }
    channel_->engine().RunUntil([&calls] {
      return std::all_of(calls.begin(), calls.end(),
                         [](const CallToRead& call) { return call.is_over(); });
    });
    for (CallToRead& call : calls) call.Finish();
  }
  absl::Status Append(wire::AppendRequest* request, ByteSpan data, uint64_t timeout_us) override {
    wire::AppendReply reply;
    CallOptions options = {.timeout_us = timeout_us};
    if (data.size() <= kMaxInlineFileBytes) {
      request->set_inline_data(data.data(), data.size());
      return stub_.Append(*request, &reply, options);
    }
    WEFT_ASSIGN_OR_RETURN(const auto buffer, channel_->AllocateBuffer(data.size()));
    std::memcpy(buffer->bytes().data(), data.data(), data.size());
    BulkCall bulk(*channel_);
    bulk.Send(buffer->slice(), request->mutable_lent_data(), {.crc32c = crc32c_});
    options.bulk = &bulk;
    return stub_.Append(*request, &reply, options);
  }
  absl::Status Sync(const wire::SyncRequest& request, wire::SyncReply* reply,
                    uint64_t timeout_us) override {
    return stub_.Sync(request, reply, {.timeout_us = timeout_us});
  }

  absl::Status Stat(const wire::StatRequest& request, wire::StatReply* reply,
                    uint64_t timeout_us) override {
    return stub_.Stat(request, reply, {.timeout_us = timeout_us});
  }
  absl::Status List(const wire::ListRequest& request, wire::ListReply* reply,
                    uint64_t timeout_us) override {
    return stub_.List(request, reply, {.timeout_us = timeout_us});
  }
  absl::Status Change(const wire::ChangeRequest& request, wire::ChangeReply* reply,
                      uint64_t timeout_us) override {
    return stub_.Change(request, reply, {.timeout_us = timeout_us});
  }

  absl::Status Lock(const wire::LockRequest& request, wire::LockReply* reply,
                    uint64_t timeout_us) override {
    return stub_.Lock(request, reply, {.timeout_us = timeout_us});
  }
  absl::Status Unlock(const wire::UnlockRequest& request, wire::UnlockReply* reply,
                      uint64_t timeout_us) override {
    return stub_.Unlock(request, reply, {.timeout_us = timeout_us});
  }

  std::string Explain() override { return channel_->Explain(); }
  Channel* channel() override { return channel_.get(); }

 private:
  const std::unique_ptr<Channel> channel_;
  const wire::Files::Stub stub_;
  const bool crc32c_;
  std::optional<ClientReader<wire::AttachReply>> session_;  // of the thread in Attach()
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileCalls>> OpenFileCalls(const std::string& address,
                                                         const ChannelOptions& options,
                                                         bool crc32c) {
  WEFT_ASSIGN_OR_RETURN(auto channel, Channel::Open(address, options));
  return std::make_unique<WeftFileCalls>(std::move(channel), crc32c);
}

}  // namespace weft::embed
