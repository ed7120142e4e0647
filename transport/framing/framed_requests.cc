// Atomics and probes of FramedConnection.

#include "core/check.h"
#include "transport/framing/framed_steps.h"

namespace weft {

absl::Status FramedConnection::FetchAdd(const RemoteSpan& remote, uint64_t operand,
                                        AtomicOperation* op) {
  return AskAtomic({0, RequestKind::kFetchAdd, remote.key, remote.offset, operand, 0}, remote, op);
}

absl::Status FramedConnection::CompareSwap(const RemoteSpan& remote, uint64_t expected,
                                           uint64_t desired, AtomicOperation* op) {
  return AskAtomic({0, RequestKind::kCompareSwap, remote.key, remote.offset, desired, expected},
                   remote, op);
}

absl::Status FramedConnection::Probe(Operation* op) {
  return Ask({0, RequestKind::kProbe, 0, 0, 0, 0}, op, nullptr);
}

absl::Status FramedConnection::AskAtomic(const Request& request, const RemoteSpan& remote,
                                         AtomicOperation* op) {
  if (remote.length != sizeof(uint64_t)) {
    return absl::InvalidArgumentError("an atomic operation is on a remote span of 8 bytes");
  }
  return Ask(request, nullptr, op);
}

absl::Status FramedConnection::Ask(Request request, Operation* probe, AtomicOperation* atomic) {
  WEFT_DCHECK(!reserved_);
  if (state_ == State::kOpen && !peer_answers_) {
    return absl::UnimplementedError("the peer's release of Weft answers no atomics or probes");
  }
  if (state_ != State::kOpen || request_sender_.full() || !MakeRoom(FrameBytes(Request::kBytes))) {
    return Refuse().status();
  }
  request_sender_.Ask(&request, probe, atomic);
  EncodeRequest(batch_.Append(Request::kBytes, FrameKind::kRequest), request);
  MarkDirty();
  return absl::OkStatus();
}

bool FramedConnection::OnRequestFrame(const Frame& frame) {
  Request request;
  due_ = true;
  return DecodeRequest(frame.payload, &request) && request_answerer_.OnRequest(request);
}

bool FramedConnection::OnReplyFrame(const Frame& frame) {
  Reply reply;
  if (!DecodeReply(frame.payload, &reply) || !request_sender_.OnReply(reply)) return false;
  if (wants_writable_) Raise(kWritable);
  return true;
}

void FramedConnection::AppendReplies() {
  Reply reply;
  while (request_answerer_.NextReply(&reply) && MakeRoom(FrameBytes(Reply::kBytes))) {
    EncodeReply(batch_.Append(Reply::kBytes, FrameKind::kReply), reply);
    request_answerer_.Replied();
  }
}

}  // namespace weft
