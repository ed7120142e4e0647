#include "transport/control/shared_tls.h"

#include <algorithm>
#include <utility>

#include "core/status.h"

namespace weft {

SharedTls::SharedTls(CounterSet* counters) : counter_set_(counters) {
  counter_set_->Register("tls.handshakes", &handshakes_);
  counter_set_->Register("tls.resumed", &resumed_);
  counter_set_->Register("tls.refused", &refused_);
}

SharedTls::~SharedTls() {
  for (const Counter* counter : {&handshakes_, &resumed_, &refused_}) {
    counter_set_->Unregister(counter);
  }
}

absl::StatusOr<std::shared_ptr<TlsCredentials>> SharedTls::CredentialsFor(
    TlsRole role, const SecurityOptions& options) {
  const auto found = std::find_if(credentials_.begin(), credentials_.end(), [&](const auto& known) {
    return known->role() == role && known->options() == options;
  });
  if (found != credentials_.end()) {
    std::rotate(found, found + 1, credentials_.end());
    return credentials_.back();
  }
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<TlsCredentials> made,
                        TlsCredentials::Create(role, options));
  if (credentials_.size() == kMaxCredentials) credentials_.erase(credentials_.begin());
  credentials_.push_back(std::move(made));
  return credentials_.back();
}

}  // namespace weft
