#include "examples/verify/witness/load.h"

#include <memory>

#include "core/clock.h"
#include "core/strings.h"
#include "weft/engine.h"

namespace kv::witness {
namespace {

// Most values fit into one frame; some must not, so that one-sided reads are under way as well when
// something breaks.
constexpr size_t kSmallBytes = 100;
constexpr size_t kLargeBytes = 48 << 10;
constexpr uint64_t kLargeEvery = 16;  // Puts

// Questions of the audit have no fault to excuse them; machines that are emulated are slow.
constexpr uint64_t kAuditTimeoutUs = 20'000'000;

std::string KeyOf(uint64_t number) { return weft::StrCat("witness/", number); }

// Different for each number in every byte's place, so that exchanged parts are seen.
std::string ValueOf(uint64_t number) {
  const size_t bytes = number / 2 % kLargeEvery == 1 ? kLargeBytes : kSmallBytes;
  const std::string word = weft::StrCat(number, ".");
  std::string value;
  while (value.size() < bytes) value += word;
  return value;
}

bool Holds(const GetReply& reply, uint64_t number) {
  return reply.fields_size() == 1 && reply.fields(0).value() == ValueOf(number);
}

bool IsPut(uint64_t number) { return number % 2 == 0; }

}  // namespace

struct Load::Put {
  PutRequest request;
  PutReply reply;
};

struct Load::Get {
  GetRequest request;
  GetReply reply;
};

Load::Load(weft::Channel& channel, uint64_t timeout_us)
    : channel_(channel),
      kv_(channel),
      timeout_us_(timeout_us),
      book_(std::make_shared<Book>(channel.engine().clock())) {}

weft::CallOptions Load::Options() const {
  weft::CallOptions options;
  options.timeout_us = timeout_us_;
  return options;
}

void Load::StartCall() {
  const uint64_t number = ledger().Start(book_->clock.NowNs() + timeout_us_ * weft::kNsPerUs);
  const uint64_t written = book_->written.load();
  if (IsPut(number) || written == kNothing) {
    StartPut(number);
  } else {
    StartGet(number, written);
  }
}

void Load::StartPut(uint64_t number) {
  auto put = std::make_shared<Put>();
  put->request.set_key(KeyOf(number));
  put->request.add_fields()->set_value(ValueOf(number));
  kv_.Put(put->request, &put->reply, Options(), [book = book_, put, number](absl::Status status) {
    if (status.ok()) book->written = number;
    book->End(number, status, put->reply.created());
  });
}

void Load::StartGet(uint64_t number, uint64_t of) {
  auto get = std::make_shared<Get>();
  get->request.set_key(KeyOf(of));
  kv_.Get(get->request, &get->reply, Options(),
          [book = book_, get, number, of](absl::Status status) {
            // A server that was started again knows nothing of before.
            const bool forgotten = absl::IsNotFound(status);
            if (forgotten) book->written = kNothing;
            book->End(number, forgotten ? absl::OkStatus() : status,
                      forgotten || Holds(get->reply, of));
          });
}

Load::Audit Load::Compare() {
  Audit audit;
  weft::CallOptions options;
  options.timeout_us = kAuditTimeoutUs;
  options.wait_for_server = true;
  for (uint64_t number = 0; number < ledger().started(); ++number) {
    const Ending ending = ledger().EndingOf(number);
    if (!IsPut(number) || (ending != Ending::kOk && ending != Ending::kNotSent)) continue;
    GetRequest request;
    GetReply reply;
    request.set_key(KeyOf(number));
    const absl::Status status = kv_.Get(request, &reply, options);
    const bool there = status.ok() && Holds(reply, number);
    if (!status.ok() && !absl::IsNotFound(status)) {
      ++audit.unread;
    } else if (ending == Ending::kOk) {
      audit.missing += !there;
    } else {
      audit.ghosts += status.ok();
    }
  }
  return audit;
}

}  // namespace kv::witness
