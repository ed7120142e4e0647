#include "examples/kv/client/check_load.h"

#include <cstring>
#include <utility>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/strings.h"

namespace kv::client {

using verify::Before;
using verify::Kind;
using verify::Value;

CheckLoad::CheckLoad(Session& session, const CheckPlan& plan, verify::Recorder* recorder,
                     uint32_t first_lane)
    : session_(session),
      plan_(plan),
      recorder_(*recorder),
      first_lane_(first_lane),
      random_(plan.seed + first_lane),
      // Numbers of different loads differ, whatever they count to.
      last_number_(uint64_t{first_lane} << 40),
      loop_(session.channel.engine(), session.outstanding,
            [this](uint32_t lane) { return StartNext(lane); }) {
  for (uint32_t i = 0; i < session.outstanding; ++i) lanes_.emplace_back(session.channel.engine());
}

void CheckLoad::Run() {
  loop_.Run([this] { return !session_.StopRequested(); });
}

std::string CheckLoad::KeyName(uint64_t key) const {
  return weft::StrCat("check/", plan_.seed, "/", key);
}

// As long as its number says, and filled with what follows from it.
std::string_view CheckLoad::ValueOf(Value number) {
  weft::Random random(number);
  value_.resize(sizeof(number) + random.Uniform(plan_.max_value_bytes + 1));
  weft::StoreLe64(reinterpret_cast<std::byte*>(value_.data()), number);
  const uint64_t pattern = random.Next64();
  for (size_t at = sizeof(number); at < value_.size(); ++at) {
    value_[at] = static_cast<char>(pattern >> (8 * (at % 8)));
  }
  return value_;
}

Value CheckLoad::NumberIn(const GetReply& reply) {
  if (reply.fields_size() == 1 && reply.fields(0).value().size() >= sizeof(Value)) {
    const std::string& value = reply.fields(0).value();
    const Value number = weft::LoadLe64(weft::AsBytes(value).data());
    if (value == ValueOf(number)) return number;
  }
  ++counts_.broken;
  return ~Value{0};  // nobody writes it: the checker will say so, too
}

bool CheckLoad::StartNext(uint32_t index) {
  if (plan_.operations > 0 && started_ == plan_.operations) return false;
  if (session_.NowNs() >= plan_.end_ns) return false;
  const uint64_t round = started_++ / (kOperationsPerKey * plan_.keys);
  const uint64_t key = round * plan_.keys + random_.Uniform(plan_.keys);
  Lane& lane = lanes_[index];
  lane.kind = !random_.Chance(plan_.writes)   ? Kind::kGet
              : random_.Chance(plan_.deletes) ? Kind::kDelete
                                              : Kind::kPut;
  const std::string name = KeyName(key);
  const Value number = lane.kind == Kind::kPut ? ++last_number_ : verify::kAbsent;
  Record(index).Invoke(lane.kind, key, number);
  switch (lane.kind) {
    case Kind::kGet:
      lane.get.set_key(name);
      session_.StartGet(index, lane.get, &lane.get_reply,
                        [this, index](absl::Status status) { OnGot(index, status); });
      break;
    case Kind::kPut:
      StartPut(index, name, number);
      break;
    case Kind::kDelete:
      lane.remove.set_key(name);
      session_.StartDelete(index, lane.remove, &lane.delete_reply,
                           [this, index](absl::Status status) { OnWritten(index, status); });
      break;
  }
  return true;
}

void CheckLoad::StartPut(uint32_t index, const std::string& key, Value number) {
  Lane& lane = lanes_[index];
  lane.put.set_key(key);
  lane.put.clear_fields();
  const std::string_view value = ValueOf(number);
  lane.put.add_fields()->set_value(value.data(), value.size());
  session_.StartPut(index, lane.put, &lane.put_reply,
                    [this, index](absl::Status status) { OnWritten(index, status); });
}

void CheckLoad::OnWritten(uint32_t index, const absl::Status& status) {
  const Lane& lane = lanes_[index];
  ++counts_.writes;
  if (status.ok()) {
    const bool existed =
        lane.kind == Kind::kPut ? !lane.put_reply.created() : lane.delete_reply.existed();
    Record(index).ReturnWrite(existed ? Before::kThere : Before::kAbsent);
  } else {
    CountError(status);
    Record(index).ReturnUnknown();
  }
  Done(index);
}

void CheckLoad::OnGot(uint32_t index, const absl::Status& status) {
  ++counts_.gets;
  if (status.ok()) {
    Record(index).ReturnGet(NumberIn(lanes_[index].get_reply));
  } else if (absl::IsNotFound(status)) {
    Record(index).ReturnGet(verify::kAbsent);
  } else {
    CountError(status);
    Record(index).ReturnNothing();
  }
  Done(index);
}

void CheckLoad::Done(uint32_t index) {
  if (plan_.max_pause_us == 0) return loop_.Done(index);
  lanes_[index].pause.Set(random_.Uniform(plan_.max_pause_us + 1),
                          [this, index] { loop_.Done(index); });
}

void CheckLoad::CountError(const absl::Status& status) {
  if (counts_.first_error.ok()) counts_.first_error = status;
  ++counts_.errors;
  if (counts_.errors >= kMaxErrors || (plan_.until_unavailable && absl::IsUnavailable(status))) {
    loop_.Stop();
  }
}

}  // namespace kv::client
