#include "transport/tls/tls_output.h"

#include <sys/socket.h>

#include <cerrno>

#include "core/check.h"

namespace weft {

void TlsOutput::Add(ByteSpan sealed) {
  std::vector<std::byte>& added = scratch_->output();
  added.insert(added.end(), sealed.begin(), sealed.end());
}

bool TlsOutput::Send() {
  std::vector<std::byte>& added = scratch_->output();
  if (unsent() > 0) {
    unsent_.insert(unsent_.end(), added.begin(), added.end());
    sent_ += ToKernel(ByteSpan(unsent_).subspan(sent_));
  } else if (const size_t sent = ToKernel(added); sent < added.size()) {
    unsent_.swap(added);
    sent_ = sent;
  }
  added.clear();
  if (unsent() == 0) {
    unsent_.clear();
    sent_ = 0;
    // The memory goes from stream to stream: who has nothing to send holds none.
    if (unsent_.capacity() > added.capacity()) unsent_.swap(added);
  }
  return unsent() <= TlsScratch::kMaxUnsentBytes;
}

void TlsOutput::SendNow(ByteSpan sealed) {
  WEFT_DCHECK(unsent() == 0 && scratch_->output().empty());  // Ours: writers flush first
  const ByteSpan rest = sealed.subspan(ToKernel(sealed));
  unsent_.assign(rest.begin(), rest.end());
  sent_ = 0;
}

void TlsOutput::Clear() {
  if (scratch_ != nullptr) scratch_->output().clear();
  unsent_.clear();
  sent_ = 0;
}

size_t TlsOutput::ToKernel(ByteSpan bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      // What the peer said last may still be there to read, and says more than this error.
      return errno == EAGAIN ? sent : bytes.size();
    }
    sent += static_cast<size_t>(count);
  }
  return sent;
}

}  // namespace weft
