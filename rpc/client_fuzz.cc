// A channel on the simulated network, and a server that keeps no rule, for a fuzzer.
//
// The bytes choose the server's hello, then event after event: calls and streams that the program
// begins, cancels and reads; replies, ends, data, credit, releases and goaways, mostly to what was
// asked, with a field here and there that is not right; time. They may also choose calls that are
// sent again, hedged, run exactly once or lend memory, and a server of several processes, one of
// which sends its clients to the next. Whatever the server does, every call and every read ends
// once, and memory that was lent is given back.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/testing/fuzz_input.h"
#include "rpc/client/bulk_call.h"
#include "rpc/client/channel.h"
#include "rpc/client/client_context.h"
#include "rpc/client/client_streams.h"
#include "rpc/testing/payload_service.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/raw_hellos.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/retry_service.weft.h"
#include "rpc/testing/stream_service.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/extras.h"
#include "rpc/wire/sessions.pb.h"
#include "rpc/wire/stream_frame.h"
#include "transport/engine.h"
#include "transport/sim/sim_network.h"

namespace weft::test {
namespace {

constexpr int kMostEvents = 100;
constexpr uint64_t kPatienceNs = 200 * kNsPerSec;  // virtual: bounds a hang
constexpr size_t kMostCalls = 16;
constexpr size_t kLentBytes = 2048;

using Talk = ClientReaderWriter<Data, Data>;

class World {
 public:
  explicit World(FuzzInput input) : input_(input) {}

  void Run() {
    const uint8_t how = input_.U8();
    // (Among the values of `how` that meant nothing before there was more to choose.)
    more_ = how / 64 == 2 ? input_.U8() : 0;
    Listen(how);
    ChannelOptions options;
    options.max_reply_bytes = 20'000;
    options.stream_window_messages = 4;
    options.stream_window_bytes = 2000;
    if ((more_ & kRetries) != 0) options.retry.max_attempts = 3;
    if ((more_ & kRetries) != 0 && (more_ & kHedges) != 0) options.retry.hedge_after_us = 5000;
    if ((more_ & kRetries) != 0 && (more_ & kOnce) != 0) options.retry.exactly_once = true;
    auto channel = Channel::Open(network_.Node("client"), "sim:server", options);
    if (!channel.ok()) return;  // the hello was none
    channel_ = *std::move(channel);
    stub_.emplace(*channel_);
    chat_.emplace(*channel_);
    store_.emplace(*channel_);
    payloads_.emplace(*channel_);
    network_.RunFor(kNsPerMs);
    for (int i = 0; i < kMostEvents && input_.more(); ++i) Event();
    End();
  }

 private:
  // What else there is, by bits of a byte.
  static constexpr uint8_t kRetries = 1;
  static constexpr uint8_t kHedges = 2;
  static constexpr uint8_t kOnce = 4;
  static constexpr uint8_t kProcesses = 8;
  static constexpr uint8_t kLends = 16;

  struct Call {
    Data reply;
    Parcel parcel;
    int ends = 0;
    ClientContext context;
    GuardedMemory memory{kLentBytes};
    std::optional<BulkCall> bulk;
  };
  struct Talking {
    std::optional<Talk> stream;
    Data in;
    Data out;
    int reads = 0;  // that have not ended
    int writes = 0;
  };
  // The end of a connection that one of the server's processes has.
  struct Process final : ConnectionHandler {
    struct Asked {
      CallId id;
      uint16_t method;
    };

    void OnOpen(Connection& opened) override { connection = &opened; }
    void OnMessage(Connection&, ByteSpan message) override {
      WEFT_CHECK(message.size() >= kCallHeaderBytes);
      const uint16_t kind = CallFrameKindOf(message);
      if ((kind & 0xFF) == static_cast<uint16_t>(CallFrameKind::kRequest)) {
        ByteSpan body;
        calls.push_back({CallIdOf(message), DecodeRequest(message, &body).method});
      } else if ((kind & 0xFF) == static_cast<uint16_t>(StreamFrameKind::kOpen)) {
        opens.push_back({CallIdOf(message), 0});
      }
    }
    void OnClosed(Connection& closed, const absl::Status&) override {
      if (connection != &closed) return;
      connection = nullptr;
      calls.clear();
      opens.clear();
    }
    Connection* connection = nullptr;
    std::vector<Asked> calls;                        // without a reply
    std::vector<std::pair<CallId, uint32_t>> opens;  // and messages sent
  };
  struct Processes final : Acceptor {
    absl::StatusOr<ConnectionHandler*> OnIncoming(Connection&) override {
      if (is_one) {
        if (all[0].connection != nullptr) return absl::UnavailableError("one at a time");
        return &all[0];
      }
      const auto free = std::find_if(all.begin(), all.end(),
                                     [](const Process& one) { return one.connection == nullptr; });
      if (free == all.end()) return absl::UnavailableError("no more");
      current = static_cast<size_t>(free - all.begin());
      return &*free;
    }
    bool is_one = true;
    std::array<Process, 4> all;
    size_t current = 0;  // that speaks
  };
  Process& peer() { return processes_.all[processes_.current]; }

  void Listen(uint8_t how) {
    processes_.is_one = (more_ & kProcesses) == 0;
    rpc::ServerHello hello = OldServerHello({"Echo", "Fail", "Hold"});
    hello.set_max_request_bytes(20'000);
    hello.set_max_extras_bytes((how & 1) != 0 ? kMaxExtrasBytes : 0);
    hello.set_takes_attachments((how & 2) != 0);
    hello.set_max_windows((how & 4) != 0 ? 2 : 0);
    hello.set_max_streams((how & 8) != 0 ? 0 : 3);
    hello.set_stream_window_messages(4);
    hello.set_stream_window_bytes(1000);
    hello.set_control_calls((how & 16) != 0 ? 2 : 0);
    hello.set_session_lease_us((how & 32) != 0 ? 1'000'000 : 0);
    rpc::ServiceTable* const table = hello.add_services();
    table->set_name("weft.test.Streams");
    for (const char* method : {"Talk", "Sum", "Count"}) table->add_methods(method);
    if (more_ != 0) {
      rpc::ServiceTable* const store = hello.add_services();
      store->set_name("weft.test.Store");
      for (const char* method : {"Look", "Set", "Add"}) store->add_methods(method);
      rpc::ServiceTable* const payloads = hello.add_services();
      payloads->set_name("weft.test.Payloads");
      for (const char* method : {"Exchange", "Hold"}) payloads->add_methods(method);
    }
    ListenOptions options;
    options.hello = hello.SerializeAsString();
    if ((how & 192) == 192) {  // something in it is wrong
      options.hello[input_.U8() % options.hello.size()] ^= static_cast<char>(input_.U8());
    }
    listener_ = CoreOf(network_.Node("server"))
                    .transport()
                    .Listen("sim:server", options, &processes_)
                    .value();
  }

  void Send(const Bytes& frame) {
    if (peer().connection == nullptr) return;
    const MessageSpace space = peer().connection->Append(frame.size());
    if (space.data == nullptr) return Settle();  // no room
    if (!frame.empty()) std::memcpy(space.data, frame.data(), frame.size());
  }

  // --- the server's frames ----------------------------------------------------------------------

  std::string Body() {
    const uint8_t how = input_.U8();
    if (how < 200) return MakeData(how, how % 16 == 15 ? 9000 : how * 4u).SerializeAsString();
    return input_.Text(input_.U8());
  }
  std::string Extras() {
    Metadata metadata;
    for (uint32_t entries = input_.Below(3); entries > 0; --entries) {
      metadata.Add(input_.Bit() ? "user" : "trace-bin", std::string(input_.U8(), 'm'))
          .IgnoreError();
    }
    absl::Status details = absl::NotFoundError("no");
    if (input_.Bit()) details.SetPayload("fuzz/url", absl::Cord(std::string(input_.U8(), 'd')));
    std::string extras = EncodeExtras(metadata, details);
    if (input_.Below(16) == 15) extras += input_.Text(8);
    return extras;
  }
  std::string Session() {
    rpc::SessionReply reply;
    const uint8_t how = input_.U8();
    reply.set_high(how < 240 ? 1 : input_.U8());
    reply.set_low(2);
    reply.set_lease_us(how % 16 < 15 ? 1'000'000 : input_.Number());
    return reply.SerializeAsString();
  }
  Bytes ReplyFrame() {
    const uint8_t how = input_.U8();
    CallId id = {how % 4u, input_.Below(4)};
    bool of_session = false;
    if (!peer().calls.empty() && how < 240) {
      const auto at = peer().calls.begin() + how % static_cast<int>(peer().calls.size());
      id = at->id;
      of_session = at->method == kSessionMethod;
      if (how < 232) peer().calls.erase(at);
    }
    const auto status = static_cast<uint16_t>(input_.Below(4) < 3 ? 0 : input_.Below(20));
    const std::string body = of_session && status == 0 ? Session() : Body();
    const uint8_t beside_bits = input_.U8();
    const std::string extras = (beside_bits & 1) != 0 ? Extras() : std::string();
    absl::Cord attachment(beside_bits >= 192 ? std::string(input_.U8(), 'a') : std::string());
    const Beside beside = {extras, attachment.empty() ? nullptr : &attachment};
    Bytes frame(kCallHeaderBytes + beside.bytes_before() + body.size() + beside.bytes_behind());
    ReplyHeader header;
    header.id = id;
    header.status = status;
    header.not_run = status != 0 && (beside_bits & 2) != 0;
    header.text_bytes = status == 0 ? 0 : static_cast<uint32_t>(body.size());
    if ((beside_bits & 60) == 60) header.text_bytes += input_.U8();
    EncodeReply(header, frame.data(), beside.bits());
    std::byte* const at = beside.Encode(body.size(), frame.data() + kCallHeaderBytes);
    if (!body.empty()) std::memcpy(at, body.data(), body.size());
    return frame;
  }
  std::pair<CallId, uint32_t>* AnyStream(uint8_t how) {
    if (peer().opens.empty() || how >= 248) return nullptr;
    return &peer().opens[how % peer().opens.size()];
  }
  Bytes DataFrame() {
    const uint8_t how = input_.U8();
    std::pair<CallId, uint32_t>* const stream = AnyStream(how);
    const CallId id = stream != nullptr ? stream->first : CallId{how % 4u, 1};
    const std::string body = Body();
    const uint8_t odd = input_.U8();
    uint32_t number = stream != nullptr ? stream->second++ : 0;
    if (odd >= 240) number += odd % 4 - 1u;
    Bytes frame(kCallHeaderBytes + body.size());
    EncodeData(id, odd == 239 ? 1 : 0, number, /*to_opener=*/odd != 238, frame.data());
    if (!body.empty()) std::memcpy(frame.data() + kCallHeaderBytes, body.data(), body.size());
    return frame;
  }
  Bytes CreditFrame() {
    const uint8_t how = input_.U8();
    std::pair<CallId, uint32_t>* const stream = AnyStream(how);
    const CallId id = stream != nullptr ? stream->first : CallId{how % 4u, 1};
    Bytes frame(kCallHeaderBytes);
    const uint8_t messages = input_.U8();
    EncodeCredit({id, static_cast<uint16_t>(messages % 5), messages >= 128 ? input_.U16() : 40u},
                 /*to_opener=*/how != 247, frame.data());
    return frame;
  }
  Bytes EndFrame() {
    const uint8_t how = input_.U8();
    std::pair<CallId, uint32_t>* const stream = AnyStream(how);
    EndHeader header;
    header.id = stream != nullptr ? stream->first : CallId{how % 4u, 1};
    header.messages = stream != nullptr ? stream->second : 0;
    if (how >= 240) header.messages += input_.U8();
    header.status = static_cast<uint16_t>(input_.Below(4) < 3 ? 0 : input_.Below(18));
    const std::string extras = input_.Below(4) == 3 ? Extras() : std::string();
    const std::string text = header.status != 0 ? "why" : "";
    header.extras = AsBytes(extras);
    header.text = AsBytes(text);
    Bytes frame(EndFrameBytes(extras.size(), text.size()));
    EncodeEnd(header, frame.data());
    if (stream != nullptr && how < 240)
      peer().opens.erase(peer().opens.begin() + (stream - &peer().opens[0]));
    return frame;
  }
  Bytes NoticeFrame() {
    const uint8_t how = input_.U8();
    Bytes frame(kCallHeaderBytes);
    const CallId id = {how % 4u, input_.Below(4)};
    if (how < 64) {
      EncodeNotice(CallFrameKind::kReleased, id, frame.data());
    } else if (how < 96) {
      EncodeStreamRelease(id, frame.data());
    } else if (how < 200) {
      EncodeGoaway(how % 4, frame.data());
    } else if (how >= 228 && more_ != 0) {
      EncodeMoved(frame.data());
    } else {
      EncodeCancel(id, frame.data());
    }
    return frame;
  }
  Bytes AnyFrame() {
    Bytes frame;
    const uint8_t kind = input_.U8();
    if (kind < 90) {
      frame = ReplyFrame();
    } else if (kind < 150) {
      frame = DataFrame();
    } else if (kind < 180) {
      frame = CreditFrame();
    } else if (kind < 220) {
      frame = EndFrame();
    } else if (kind < 240) {
      frame = NoticeFrame();
    } else {
      const ByteSpan bytes = input_.Bytes(input_.U8());
      frame.assign(bytes.begin(), bytes.end());
    }
    const uint8_t how = input_.U8();
    if (how >= 252 && !frame.empty()) {
      frame[input_.U8() % frame.size()] ^= static_cast<std::byte>(input_.U8());
    } else if (how >= 250) {
      frame.resize(std::min<size_t>(frame.size(), input_.U8()));
    }
    return frame;
  }

  // --- events -----------------------------------------------------------------------------------

  void Event() {
    const uint8_t event = input_.U8();
    if (event % 2 == 0) return Send(AnyFrame());
    switch (event / 2 % 12) {
      case 0:
      case 1:
      case 2:
        return StartCall();
      case 3:
        return StartTalk();
      case 4:
        if (!calls_.empty()) calls_[input_.U8() % calls_.size()]->context.Cancel().IgnoreError();
        return;
      case 5:
      case 6:
        return Read();
      case 7:
        return Write();
      case 8:
        if (!talks_.empty()) talks_[input_.U8() % talks_.size()]->stream.reset();
        return;
      case 9:
        return network_.RunFor(uint64_t{input_.U8()} * kNsPerMs);
      case 10:
        if (event > 220 && peer().connection != nullptr)
          peer().connection->Close("the server's wish");
        if (event <= 220 && !processes_.is_one)
          processes_.current = input_.U8() % processes_.all.size();
        return;
      default:
        Settle();
        network_.CheckInvariants();
    }
  }
  // A channel that is refused comes again and again: that never settles.
  void Settle() {
    if (processes_.is_one) return network_.Settle();
    network_.RunFor(20 * kNsPerMs);
  }
  void StartCall() {
    if (calls_.size() == kMostCalls) return;
    const uint8_t how = input_.U8();
    calls_.push_back(std::make_unique<Call>());
    Call* const call = calls_.back().get();
    CallOptions options;
    // One that has nothing beside its request can be ended by time alone.
    const bool is_plain = more_ != 0 && how % 32 >= 24;
    if (!is_plain) options.context = &call->context;
    options.timeout_us = is_plain || (how & 1) != 0 ? 50'000 : 0;
    options.priority = static_cast<Priority>((how >> 1) % 3);
    if (!is_plain && (how & 8) != 0) call->context.AddMetadata("user", "anna").IgnoreError();
    if (more_ != 0 && !is_plain && (how & 64) != 0) {
      call->context.SetAttachment(absl::Cord(std::string(how, 'a'))).IgnoreError();
    }
    const auto ended = [call](absl::Status) { WEFT_CHECK(++call->ends == 1); };
    const Data request = MakeData(how, how >= 240 ? 9000 : 20);
    const uint32_t which = more_ == 0 ? 0 : input_.Below(8);
    switch (which) {
      case 1:
      case 2:
        return store_->Look(request, &call->reply, options, ended);
      case 3:
        return store_->Set(request, &call->reply, options, ended);
      case 4:
      case 5:
        return store_->Add(request, &call->reply, options, ended);
      case 6:
      case 7:
        if ((more_ & kLends) != 0) return StartLending(call, options, ended);
        [[fallthrough]];
      default:
        return stub_->Echo(request, &call->reply, options, ended);
    }
  }
  void StartLending(Call* call, CallOptions options, Function<void(absl::Status)> ended) {
    call->bulk.emplace(*channel_);
    Parcel request;
    call->bulk->Send(call->memory.slice(0, kLentBytes / 2), request.mutable_data());
    if (input_.Bit()) call->bulk->Receive(call->memory.slice(kLentBytes / 2, kLentBytes / 2));
    options.bulk = &*call->bulk;
    payloads_->Hold(request, &call->parcel, options,
                    [call, ended = std::move(ended)](absl::Status status) mutable {
                      if (status.ok())
                        call->bulk->Received(call->parcel.data()).status().IgnoreError();
                      ended(std::move(status));
                    });
  }
  void StartTalk() {
    if (talks_.size() == kMostCalls) return;
    auto talk = std::make_shared<Talking>();
    talk->stream.emplace(chat_->Talk());
    talks_.push_back(std::move(talk));
  }
  void Read() {
    if (talks_.empty()) return;
    const std::shared_ptr<Talking> talk = talks_[input_.U8() % talks_.size()];
    if (!talk->stream || talk->reads > 0) return;
    ++talk->reads;
    talk->stream->Read(&talk->in, [talk](bool) { WEFT_CHECK(--talk->reads == 0); });
  }
  void Write() {
    if (talks_.empty()) return;
    const std::shared_ptr<Talking> talk = talks_[input_.U8() % talks_.size()];
    if (!talk->stream || talk->writes > 0) return;
    ++talk->writes;
    talk->out = MakeData(1, input_.U8() * 4u);
    talk->stream->Write(talk->out, [talk](bool) { WEFT_CHECK(--talk->writes == 0); });
  }
  void End() {
    for (auto& talk : talks_) talk->stream.reset();
    for (auto& call : calls_) call->context.Cancel().IgnoreError();
    CloseAll();
    const auto all_ended = [&] {
      return std::all_of(calls_.begin(), calls_.end(), [](auto& c) { return c->ends == 1; }) &&
             std::all_of(talks_.begin(), talks_.end(),
                         [](auto& t) { return t->reads == 0 && t->writes == 0; });
    };
    WEFT_CHECK(network_.RunUntil(all_ended, kPatienceNs));
    for (auto& call : calls_) {
      call->bulk.reset();
      WEFT_CHECK(call->memory.CanariesLive());
    }
    stub_.reset();
    chat_.reset();
    store_.reset();
    payloads_.reset();
    channel_.reset();
    network_.Settle();
    network_.CheckInvariants();
    listener_.reset();
    CloseAll();
    network_.Settle();
  }
  void CloseAll() {
    for (Process& process : processes_.all) {
      if (process.connection != nullptr) process.connection->Close("done");
    }
  }

  FuzzInput input_;
  uint8_t more_ = 0;
  Processes processes_;
  std::deque<std::unique_ptr<Call>> calls_;
  std::vector<std::shared_ptr<Talking>> talks_;
  SimNetwork network_{/*seed=*/1};
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Channel> channel_;
  std::optional<Probe::Stub> stub_;
  std::optional<Streams::Stub> chat_;
  std::optional<Store::Stub> store_;
  std::optional<Payloads::Stub> payloads_;
};

}  // namespace
}  // namespace weft::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::test::World(weft::FuzzInput(data, size)).Run();
  return 0;
}
