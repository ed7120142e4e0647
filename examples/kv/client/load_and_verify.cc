// Every line of a file into the store, and every one compared with what came back.
#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/strings.h"
#include "examples/kv/client/call_all.h"
#include "examples/kv/client/commands.h"
#include "examples/kv/client/dataset.h"
#include "examples/kv/client/one_sided_report.h"
#include "examples/kv/client/report.h"

namespace kv::client {
namespace {

// Of how many wrong values the key and both contents are shown.
constexpr uint64_t kShownMismatches = 5;
constexpr size_t kShownBytes = 60;  // of each

// The pairs that a loaded store holds: not those whose key comes again.
std::vector<const Dataset::Pair*> PairsToStore(const Dataset& dataset) {
  std::vector<const Dataset::Pair*> pairs;
  for (const Dataset::Pair& pair : dataset.pairs()) {
    if (!pair.replaced) pairs.push_back(&pair);
  }
  return pairs;
}

size_t LargestValue(const std::vector<const Dataset::Pair*>& pairs) {
  size_t largest = 0;
  for (const Dataset::Pair* pair : pairs) largest = std::max(largest, pair->value.size());
  return largest;
}

std::string Shortened(std::string_view bytes) {
  const std::string text = absl::Utf8SafeCHexEscape(weft::ToAbsl(bytes.substr(0, kShownBytes)));
  return weft::StrCat("\"", text, bytes.size() > kShownBytes ? "\"..." : "\"");
}

// The line that says how it went, also when it ended early.
void PrintOutcome(std::string_view what, const Outcome& outcome, uint64_t total,
                  const std::string& path) {
  absl::PrintF("%s %s of %s records over %s in %.2f s: %s calls/s, p50 %s, p99 %s\n",
               weft::ToAbsl(what), WithCommas(outcome.completed), WithCommas(total), path,
               outcome.seconds, WithCommas(static_cast<uint64_t>(outcome.PerSecond())),
               Duration(outcome.latency.Percentile(50)), Duration(outcome.latency.Percentile(99)));
  std::fflush(stdout);
}

absl::Status StatusOf(const Outcome& outcome) {
  if (!outcome.error.ok()) return outcome.error;
  return outcome.interrupted ? absl::CancelledError("interrupted") : absl::OkStatus();
}

// Counts the values that are not what they should be, and shows the first ones.
class Mismatches {
 public:
  void Add(const Dataset::Pair& pair, const std::string& what) {
    if (++count_ > kShownMismatches) return;
    absl::FPrintF(stderr, "%s: expected %s, %s\n", Shortened(pair.key), Shortened(pair.value),
                  what);
  }
  uint64_t count() const { return count_; }

 private:
  uint64_t count_ = 0;
};

bool Holds(const GetReply& reply, std::string_view value) {
  return reply.fields_size() == 1 && reply.fields(0).name().empty() &&
         reply.fields(0).value() == value;
}

}  // namespace

absl::Status Load(Session& session, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const Dataset dataset, Dataset::Read(path));
  const std::vector<const Dataset::Pair*> pairs = PairsToStore(dataset);
  absl::PrintF("%s: %s lines, %s keys, %s bytes\n", path, WithCommas(dataset.pairs().size()),
               WithCommas(pairs.size()), WithCommas(dataset.bytes()));
  const auto fill = [&](uint64_t number, PutRequest* request) {
    request->set_key(pairs[number]->key);
    request->clear_fields();
    request->add_fields()->set_value(pairs[number]->value.data(), pairs[number]->value.size());
  };
  const auto check = [&](uint64_t number, const absl::Status& status, const PutReply&) {
    return weft::Annotate(status, weft::StrCat("put ", Shortened(pairs[number]->key)));
  };
  const auto put = [&](uint32_t lane, const PutRequest& request, PutReply* reply,
                       weft::Function<void(absl::Status)> done) {
    session.StartPut(lane, request, reply, std::move(done));
  };
  CallAll<PutRequest, PutReply> puts(session, put, pairs.size(), fill, check);
  const Outcome outcome = puts.Run("load", "puts");
  PrintOutcome("loaded", outcome, pairs.size(), PathName(session.server()));
  return StatusOf(outcome);
}

absl::Status Verify(Session& session, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const Dataset dataset, Dataset::Read(path));
  const std::vector<const Dataset::Pair*> pairs = PairsToStore(dataset);
  if (session.bulk != nullptr) session.bulk->ExpectValues(1, LargestValue(pairs));
  Mismatches mismatches;
  const auto fill = [&](uint64_t number, GetRequest* request) {
    request->set_key(pairs[number]->key);
  };
  const auto check = [&](uint64_t number, const absl::Status& status, const GetReply& reply) {
    const Dataset::Pair& pair = *pairs[number];
    if (absl::IsNotFound(status)) {
      mismatches.Add(pair, "there is no record");
    } else if (!status.ok()) {
      return weft::Annotate(status, weft::StrCat("get ", Shortened(pair.key)));
    } else if (!Holds(reply, pair.value)) {
      mismatches.Add(pair, weft::StrCat("there is ", reply.fields_size() == 0
                                                         ? "a record without fields"
                                                         : Shortened(reply.fields(0).value())));
    }
    return absl::OkStatus();
  };
  const auto get = [&](uint32_t lane, const GetRequest& request, GetReply* reply,
                       weft::Function<void(absl::Status)> done) {
    session.StartGet(lane, request, reply, std::move(done));
  };
  CallAll<GetRequest, GetReply> gets(session, get, pairs.size(), fill, check);
  const Outcome outcome = gets.Run("verify", "gets");
  PrintOutcome("compared", outcome, pairs.size(), PathName(session.server()));
  if (session.one_sided != nullptr) std::fputs(OneSidedLine(*session.one_sided).c_str(), stdout);
  WEFT_RETURN_IF_ERROR(StatusOf(outcome));
  if (mismatches.count() > 0) {
    return absl::DataLossError(weft::StrCat(WithCommas(mismatches.count()), " of ",
                                            WithCommas(pairs.size()), " values are wrong"));
  }
  absl::PrintF("all %s values are right\n", WithCommas(pairs.size()));
  return absl::OkStatus();
}

}  // namespace kv::client
