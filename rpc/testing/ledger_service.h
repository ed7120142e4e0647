// The service of calls with and without structs, implemented both ways; what one knows the other
// knows too, so that their answers can be compared.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "rpc/testing/ledger.weft.h"

namespace weft::test {

// A struct whose every byte of payload is something.
inline PaymentLayout MakePayment(uint64_t from, int64_t amount) {
  PaymentLayout payment;
  payment.urgent = from % 2 != 0;
  payment.from = from;
  payment.to = from + 1;
  payment.amount = amount;
  payment.note.fill(std::byte{'n'});
  return payment;
}

inline Words MakeWords(std::string text) {
  Words words;
  words.set_text(std::move(text));
  return words;
}

// Byte for byte, padding included.
template <FixedLayout T>
bool SameBytes(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <FixedLayout T>
std::string_view BytesOfRecord(const T& record) {
  return {reinterpret_cast<const char*>(&record), sizeof(T)};
}

class MessageLedger final : public Ledger::Service {
 public:
  absl::Status Move(ServerContext&, const Payment& request, Balance* reply) override {
    reply->set_amount(request.amount() + static_cast<int64_t>(request.from()));
    reply->set_moves(++moves + (request.urgent() ? 1000 : 0));
    return absl::OkStatus();
  }
  absl::Status Explain(ServerContext&, const Payment& request, Words* reply) override {
    reply->set_text(std::to_string(request.amount()) + " " + request.note());
    return absl::OkStatus();
  }
  absl::Status Find(ServerContext&, const Words& request, Balance* reply) override {
    reply->set_amount(static_cast<int64_t>(request.text().size()));
    return absl::OkStatus();
  }
  absl::Status Note(ServerContext&, const Words& request, Words* reply) override {
    *reply = request;
    return absl::OkStatus();
  }
  absl::Status Mirror(ServerContext&, const Sample& request, Sample* reply) override {
    *reply = request;
    return absl::OkStatus();
  }
  absl::Status Turn(ServerContext&, const Page& request, Page* reply) override {
    reply->mutable_words()->Assign(request.words().rbegin(), request.words().rend());
    return absl::OkStatus();
  }

  uint32_t moves = 0;
};

class LayoutLedger final : public Ledger::LayoutService {
 public:
  absl::Status Move(ServerContext&, const PaymentLayout& request, BalanceLayout* reply) override {
    reply->amount = request.amount + static_cast<int64_t>(request.from);
    reply->moves = ++moves + (request.urgent ? 1000 : 0);
    last = request;
    return absl::OkStatus();
  }
  absl::Status Explain(ServerContext&, const PaymentLayout& request, Words* reply) override {
    reply->set_text(std::to_string(request.amount) + " " +
                    std::string(reinterpret_cast<const char*>(request.note.data()), 13));
    return absl::OkStatus();
  }
  absl::Status Find(ServerContext&, const Words& request, BalanceLayout* reply) override {
    reply->amount = static_cast<int64_t>(request.text().size());
    return absl::OkStatus();
  }
  absl::Status Note(ServerContext&, const Words& request, Words* reply) override {
    *reply = request;
    return absl::OkStatus();
  }
  void StartMirror(UnaryCall<SampleLayout, SampleLayout> call) override {
    *call.reply() = call.request();
    call.Finish(absl::OkStatus());
  }
  absl::Status Turn(ServerContext&, const PageLayout& request, PageLayout* reply) override {
    std::reverse_copy(request.words.begin(), request.words.end(), reply->words.begin());
    return absl::OkStatus();
  }

  uint32_t moves = 0;
  PaymentLayout last;
};

}  // namespace weft::test
