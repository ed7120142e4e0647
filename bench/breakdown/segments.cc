#include "bench/breakdown/segments.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"

namespace weft::bench {
namespace {

constexpr double kCountedShare = 0.95;
constexpr int kBarWidth = 40;

// A point of one side.
struct Place {
  bool on_client;
  TracePoint point;
};

uint64_t At(const TracedCall& call, const Place& place) {
  const TraceRow& row = place.on_client ? call.client : call.server;
  return row.at[static_cast<int>(place.point)];
}

constexpr Place kStarted = {true, TracePoint::kStarted};
constexpr Place kRequestWritten = {true, TracePoint::kWritten};
constexpr Place kRequestSending = {true, TracePoint::kSending};
constexpr Place kRequestSent = {true, TracePoint::kSent};
constexpr Place kServerReadyFlag = {false, TracePoint::kReadyFlag};
constexpr Place kRequestSeen = {false, TracePoint::kSeen};
constexpr Place kHandler = {false, TracePoint::kHandler};
constexpr Place kReplyWritten = {false, TracePoint::kWritten};
constexpr Place kReplySending = {false, TracePoint::kSending};
constexpr Place kReplySent = {false, TracePoint::kSent};
constexpr Place kReplySeen = {true, TracePoint::kSeen};
constexpr Place kReturned = {true, TracePoint::kReturned};

struct Part {
  const char* name;
  Place from;
  Place to;
};

constexpr Part kParts[] = {
    {"client: stub, slot, header, protobuf into the slot", kStarted, kRequestWritten},
    {"client: to the flush", kRequestWritten, kRequestSending},
    {"wire: provider's send, kernel, other core's poll", kRequestSending, kRequestSeen},
    {"server: frame, dispatch, protobuf to the message", kRequestSeen, kHandler},
    {"server: handler, reply's protobuf into the slot", kHandler, kReplyWritten},
    {"server: to the flush", kReplyWritten, kReplySending},
    {"wire: provider's send, kernel, other core's poll", kReplySending, kReplySeen},
    {"client: frame, protobuf to the reply, return", kReplySeen, kReturned},
};
constexpr Part kInside[] = {
    {"of the wire: inside the client's send", kRequestSending, kRequestSent},
    {"of the wire: inside the server's send", kReplySending, kReplySent},
};
// Of calls over links that the server does not poll in every turn.
constexpr Part kCalledFor[] = {
    {"of the call: to the server's look at the link", kStarted, kServerReadyFlag},
    {"of the call: from there to the request", kServerReadyFlag, kRequestSeen},
};
constexpr Part kWhole = {"round trip", kStarted, kReturned};

bool HasPart(const TracedCall& call, const Part& part) {
  return At(call, part.from) != 0 && At(call, part.to) >= At(call, part.from);
}

bool IsComplete(const TracedCall& call) {
  return std::all_of(std::begin(kParts), std::end(kParts),
                     [&](const Part& part) { return HasPart(call, part); });
}

// The server found the link because it was called.
bool WasCalledFor(const TracedCall& call) {
  return HasPart(call, kCalledFor[0]) && HasPart(call, kCalledFor[1]);
}

double Ticks(const TracedCall& call, const Part& part) {
  return static_cast<double>(At(call, part.to) - At(call, part.from));
}

// `calls`: fastest first.
Segment Measure(const Part& part, const std::vector<TracedCall>& calls, double ticks_per_ns) {
  std::vector<double> ticks;
  ticks.reserve(calls.size());
  for (const TracedCall& call : calls) ticks.push_back(Ticks(call, part));
  const auto counted = std::max<size_t>(1, static_cast<size_t>(kCountedShare * ticks.size()));
  double sum = 0;
  for (size_t i = 0; i < counted; ++i) sum += ticks[i];
  std::nth_element(ticks.begin(), ticks.begin() + ticks.size() / 2, ticks.end());
  return {part.name, ticks[ticks.size() / 2] / ticks_per_ns,
          sum / static_cast<double>(counted) / ticks_per_ns};
}

std::string Line(const Segment& segment, double whole_ns) {
  const double share = whole_ns > 0 ? segment.mean_ns / whole_ns : 0;
  const auto length = static_cast<size_t>(share * kBarWidth + 0.5);
  return absl::StrFormat("%-52s%9.0f%9.0f%6.1f %%  %s\n", segment.name, segment.p50_ns,
                         segment.mean_ns, 100 * share, std::string(length, '#'));
}

}  // namespace

Breakdown Divide(absl::Span<const TracedCall> calls, double ticks_per_ns) {
  Breakdown breakdown;
  std::vector<TracedCall> complete;
  std::copy_if(calls.begin(), calls.end(), std::back_inserter(complete), IsComplete);
  breakdown.calls = complete.size();
  breakdown.incomplete = calls.size() - complete.size();
  if (complete.empty()) return breakdown;
  std::sort(complete.begin(), complete.end(), [](const TracedCall& a, const TracedCall& b) {
    return Ticks(a, kWhole) < Ticks(b, kWhole);
  });
  for (const Part& part : kParts) {
    breakdown.segments.push_back(Measure(part, complete, ticks_per_ns));
  }
  for (const Part& part : kInside) {
    breakdown.inside.push_back(Measure(part, complete, ticks_per_ns));
  }
  // Of the calls that were: a link may be polled by chance.
  std::vector<TracedCall> called;
  std::copy_if(complete.begin(), complete.end(), std::back_inserter(called), WasCalledFor);
  if (2 * called.size() > complete.size()) {
    for (const Part& part : kCalledFor) {
      breakdown.inside.push_back(Measure(part, called, ticks_per_ns));
    }
  }
  breakdown.whole = Measure(kWhole, complete, ticks_per_ns);
  return breakdown;
}

std::string ToTable(const Breakdown& breakdown) {
  std::string table = absl::StrFormat("%-52s%9s%9s%8s\n", "ns", "p50", "mean", "share");
  const double whole_ns = breakdown.whole.mean_ns;
  for (const Segment& segment : breakdown.segments) table += Line(segment, whole_ns);
  table += Line(breakdown.whole, whole_ns);
  for (const Segment& segment : breakdown.inside) table += Line(segment, whole_ns);
  return table;
}

}  // namespace weft::bench
