// The commands that make one call and print what it returned.
#include <cstdio>
#include <utility>

#include "absl/strings/escaping.h"
#include "core/status.h"
#include "core/strings.h"
#include "examples/kv/client/closed_loop.h"
#include "examples/kv/client/commands.h"

namespace kv::client {
namespace {

// What a record holds at most (kv.proto).
constexpr size_t kLargestValue = size_t{16} << 20;

void Print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// Bytes that a terminal can show; UTF-8 stays as it is.
std::string Printable(const std::string& bytes) { return absl::Utf8SafeCHexEscape(bytes); }

bool IsPlainValue(const google::protobuf::RepeatedPtrField<Field>& fields) {
  return fields.size() == 1 && fields[0].name().empty();
}

std::string FieldList(const google::protobuf::RepeatedPtrField<Field>& fields) {
  if (IsPlainValue(fields)) return Printable(fields[0].value());
  std::string text;
  for (const Field& field : fields) {
    if (!text.empty()) text += ' ';
    text += weft::StrCat(Printable(field.name()), "=", Printable(field.value()));
  }
  return text;
}

// Drives the engine until what `start` starts in lane 0 has ended.
template <class Start>
absl::Status Wait(Session& session, Start start) {
  absl::Status result;
  ClosedLoop once(session.channel.engine(), /*lanes=*/1,
                  [&, started = false](uint32_t lane) mutable {
                    if (std::exchange(started, true)) return false;
                    start(lane, [&, lane](absl::Status status) {
                      result = std::move(status);
                      once.Done(lane);
                    });
                    return true;
                  });
  once.Run([] { return true; });
  return result;
}

}  // namespace

absl::Status Get(Session& session, const std::string& key) {
  GetRequest request;
  GetReply reply;
  request.set_key(key);
  if (session.bulk != nullptr) session.bulk->ExpectValues(1, kLargestValue);
  WEFT_RETURN_IF_ERROR(Wait(session, [&](uint32_t lane, auto done) {
    session.StartGet(lane, request, &reply, std::move(done));
  }));
  // A plain value exactly as it is: it may go into a file.
  Print(IsPlainValue(reply.fields()) ? reply.fields(0).value() : FieldList(reply.fields()));
  Print("\n");
  return absl::OkStatus();
}

absl::Status Put(Session& session, const std::string& key, const std::string& value) {
  PutRequest request;
  PutReply reply;
  request.set_key(key);
  request.add_fields()->set_value(value);
  WEFT_RETURN_IF_ERROR(Wait(session, [&](uint32_t lane, auto done) {
    session.StartPut(lane, request, &reply, std::move(done));
  }));
  Print(reply.created() ? "created\n" : "replaced\n");
  return absl::OkStatus();
}

absl::Status Delete(Session& session, const std::string& key) {
  DeleteRequest request;
  DeleteReply reply;
  request.set_key(key);
  WEFT_RETURN_IF_ERROR(Wait(session, [&](uint32_t lane, auto done) {
    session.StartDelete(lane, request, &reply, std::move(done));
  }));
  if (!reply.existed()) return absl::NotFoundError("no record has this key");
  Print("deleted\n");
  return absl::OkStatus();
}

absl::Status Scan(Session& session, const std::string& start, uint32_t limit) {
  ScanRequest request;
  ScanReply reply;
  request.set_start(start);
  request.set_limit(limit);
  WEFT_RETURN_IF_ERROR(Wait(session, [&](uint32_t lane, auto done) {
    session.StartScan(lane, request, &reply, std::move(done));
  }));
  for (const ScanReply::Record& record : reply.records()) {
    Print(weft::StrCat(Printable(record.key()), "\t", FieldList(record.fields()), "\n"));
  }
  std::fprintf(stderr, "%d records%s\n", reply.records_size(),
               reply.more() ? ", and there are more" : "");
  return absl::OkStatus();
}

absl::Status Explain(Session& session) {
  Print(session.server().Explain());
  StatsReply reply;
  WEFT_RETURN_IF_ERROR(Kv::Stub(session.server()).Stats({}, &reply, session.call));
  Print(weft::StrCat("the server says: ", reply.caller(), "\n"));
  return absl::OkStatus();
}

}  // namespace kv::client
