#include "rpc/testing/hostile_server.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <iterator>

#include "absl/strings/cord.h"
#include "core/check.h"
#include "core/clock.h"
#include "rpc/testing/ledger.weft.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/raw_hellos.h"
#include "rpc/testing/signal_service.weft.h"
#include "rpc/wire/beside.h"
#include "rpc/wire/extras.h"
#include "rpc/wire/metadata.h"
#include "rpc/wire/peer_frame.h"
#include "rpc/wire/sessions.pb.h"
#include "rpc/wire/stream_frame.h"
#include "transport/engine.h"

namespace weft::test {

void HostileServer::Listen(SimNetwork* network, uint8_t how, Kind kind) {
  network_ = network;
  kind_ = std::move(kind);
  hello_ = MakeHello(how);
  ListenOptions options;
  options.hello = hello_.SerializeAsString();
  if ((how & 192) == 192) {  // something in it is wrong
    options.hello[input_.U8() % options.hello.size()] ^= static_cast<char>(input_.U8());
  }
  listeners_.push_back(transport().Listen("sim:server", options, this).value());
  if (kind_.has_several) {
    listeners_.push_back(transport().Listen("sim:other", options, this).value());
  }
}

void HostileServer::Settle() {
  if (!kind_.has_several) return network_->Settle();
  network_->RunFor(20 * kNsPerMs);
}

// --- what it does --------------------------------------------------------------------------------

void HostileServer::SendFrame() { Send(AnyFrame()); }

void HostileServer::ChangeSpeaker() {
  if (kind_.has_several) speaker_ = input_.U8() % processes_.size();
}

void HostileServer::CloseOne() {
  if (speaker().connection != nullptr) speaker().connection->Close("the server's wish");
}

void HostileServer::Refuse() {
  if (!kind_.has_several) return;  // see Settle()
  constexpr absl::StatusCode kRefusals[] = {
      absl::StatusCode::kOk, absl::StatusCode::kAborted, absl::StatusCode::kUnavailable,
      absl::StatusCode::kInvalidArgument, absl::StatusCode::kResourceExhausted};
  refusal_ = kRefusals[input_.Below(std::size(kRefusals))];
}

void HostileServer::Dial() {
  Process* const process = FreeProcess();
  if (kind_.peer_of.empty() || process == nullptr) return;
  rpc::ClientHello hello = PeerDialingHello(kPeerId, 77 + input_.Below(3));
  hello.mutable_peer()->set_wanted(kind_.peer_of);
  *hello.mutable_peer()->mutable_server() = hello_;
  ConnectOptions options;
  options.hello = hello.SerializeAsString();
  const uint8_t odd = input_.U8();
  if (odd >= 240) options.hello[input_.U8() % options.hello.size()] ^= static_cast<char>(odd);
  process->taken = transport().Connect("sim:client", options, process).ok();
}

void HostileServer::CloseAll() {
  refusal_ = absl::StatusCode::kOk;
  for (Process& process : processes_) {
    if (process.connection != nullptr) process.connection->Close("done");
  }
}

// --- connections ---------------------------------------------------------------------------------

void HostileServer::Process::OnMessage(Connection&, ByteSpan message) {
  WEFT_CHECK(message.size() >= kCallHeaderBytes);
  switch (CallFrameKindOf(message) & 0xFF) {
    case static_cast<uint16_t>(CallFrameKind::kRequest): {
      ByteSpan body;
      calls.push_back({CallIdOf(message), DecodeRequest(message, &body).method});
      return;
    }
    case static_cast<uint16_t>(StreamFrameKind::kOpen):
      opens.push_back({CallIdOf(message), 0});
      return;
    case static_cast<uint16_t>(PeerFrameKind::kEnd):
      calls.clear();
      opens.clear();
      return;
    default:
      return;
  }
}

void HostileServer::Process::OnClosed(Connection&, const absl::Status&) {
  taken = false;
  connection = nullptr;
  calls.clear();
  opens.clear();
}

absl::StatusOr<ConnectionHandler*> HostileServer::OnIncoming(Connection&) {
  if (refusal_ != absl::StatusCode::kOk) return absl::Status(refusal_, "as the server wants it");
  Process* const process = FreeProcess();
  if (process == nullptr) return absl::UnavailableError("no more");
  process->taken = true;
  return process;
}

HostileServer::Process* HostileServer::FreeProcess() {
  for (size_t i = 0; i < (kind_.has_several ? processes_.size() : 1); ++i) {
    if (processes_[i].taken) continue;
    speaker_ = i;
    return &processes_[i];
  }
  return nullptr;
}

Transport& HostileServer::transport() { return CoreOf(network_->Node("server")).transport(); }

// --- the hello -----------------------------------------------------------------------------------

rpc::ServerHello HostileServer::MakeHello(uint8_t how) const {
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
  const auto add = [&hello](const char* name, std::initializer_list<const char*> methods) {
    rpc::ServiceTable* const table = hello.add_services();
    table->set_name(name);
    for (const char* method : methods) table->add_methods(method);
    return table;
  };
  add("weft.test.Streams", {"Talk", "Sum", "Count"});
  if (kind_.has_stores) {
    add("weft.test.Store", {"Look", "Set", "Add"});
    add("weft.test.Payloads", {"Exchange", "Hold"});
  }
  if (kind_.has_ledgers) {
    hello.mutable_services(0)->add_methods("Strict");
    uint32_t before = 0;
    for (const rpc::ServiceTable& table : hello.services()) {
      before += static_cast<uint32_t>(table.methods_size());
    }
    add("weft.test.Ledger", {"Move", "Explain", "Find"});
    rpc::ServiceTable* const signals = add("weft.test.Signals", {"Notify", "Mark", "Ask"});
    signals->add_one_way(kind_.is_other ? 2 : 0);
    signals->add_one_way(1);
    if (kind_.has_forms) AddForms(before, &hello);
  }
  if (!kind_.peer_of.empty()) {
    hello.set_peer_id(kind_.is_other ? "another" : kPeerId);  // as who listens
    hello.set_incarnation(77);
  }
  return hello;
}

void HostileServer::AddForms(uint32_t first, rpc::ServerHello* hello) const {
  const uint64_t other = kind_.is_other ? 1 : 0;
  const auto add = [&](uint32_t method, uint64_t request, uint64_t reply) {
    rpc::MethodForm* const form = hello->add_forms();
    form->set_method(first + method);
    form->set_request_layout(request);
    form->set_reply_layout(reply);
  };
  add(0, PaymentLayout::kLayoutHash, 0);
  add(0, PaymentLayout::kLayoutHash, BalanceLayout::kLayoutHash + other);
  add(1, PaymentLayout::kLayoutHash + other, 0);
  add(2, 0, BalanceLayout::kLayoutHash + other);
  add(4, BeaconLayout::kLayoutHash + other, 0);
}

// --- parts of frames -----------------------------------------------------------------------------

std::string HostileServer::Body() {
  const uint8_t how = input_.U8();
  if (how == 191) return MakeData(how, 21'000).SerializeAsString();  // more than clients take
  if (how < 200) return MakeData(how, how % 16 == 15 ? 9000 : how * 4u).SerializeAsString();
  return input_.Text(input_.U8());
}

std::string HostileServer::Extras() {
  Metadata metadata;
  for (uint32_t entries = input_.Below(3); entries > 0; --entries) {
    metadata.Add(input_.Bit() ? "user" : "trace-bin", std::string(input_.U8(), 'm')).IgnoreError();
  }
  absl::Status details = absl::NotFoundError("no");
  if (input_.Bit()) details.SetPayload("fuzz/url", absl::Cord(std::string(input_.U8(), 'd')));
  std::string extras = EncodeExtras(metadata, details);
  if (input_.Below(16) == 15) extras += input_.Text(8);
  return extras;
}

std::string HostileServer::Session() {
  rpc::SessionReply reply;
  const uint8_t how = input_.U8();
  reply.set_high(how < 240 ? 1 : input_.U8());
  reply.set_low(2);
  reply.set_lease_us(how % 16 < 15 ? 1'000'000 : input_.Number());
  return reply.SerializeAsString();
}

std::pair<CallId, uint32_t>* HostileServer::AnyStream(uint8_t how) {
  if (speaker().opens.empty() || how >= 248) return nullptr;
  return &speaker().opens[how % speaker().opens.size()];
}

// --- frames --------------------------------------------------------------------------------------

Bytes HostileServer::ReplyFrame() {
  const uint8_t how = input_.U8();
  CallId id = {how % 4u, input_.Below(4)};
  bool of_session = false;
  std::vector<Process::Asked>& calls = speaker().calls;
  if (!calls.empty() && how < 240) {
    const auto at = calls.begin() + how % static_cast<int>(calls.size());
    id = at->id;
    of_session = at->method == kSessionMethod;
    if (how < 232) calls.erase(at);
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

Bytes HostileServer::DataFrame() {
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

Bytes HostileServer::CreditFrame() {
  const uint8_t how = input_.U8();
  std::pair<CallId, uint32_t>* const stream = AnyStream(how);
  const CallId id = stream != nullptr ? stream->first : CallId{how % 4u, 1};
  Bytes frame(kCallHeaderBytes);
  const uint8_t messages = input_.U8();
  EncodeCredit({id, static_cast<uint16_t>(messages % 5), messages >= 128 ? input_.U16() : 40u},
               /*to_opener=*/how != 247, frame.data());
  return frame;
}

Bytes HostileServer::EndFrame() {
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
  if (stream != nullptr && how < 240) {
    speaker().opens.erase(speaker().opens.begin() + (stream - &speaker().opens[0]));
  }
  return frame;
}

Bytes HostileServer::NoticeFrame() {
  const uint8_t how = input_.U8();
  Bytes frame(kCallHeaderBytes);
  const CallId id = {how % 4u, input_.Below(4)};
  if (how < 64) {
    EncodeNotice(CallFrameKind::kReleased, id, frame.data());
  } else if (how < 96) {
    EncodeStreamRelease(id, frame.data());
  } else if (how < 192) {
    EncodeGoaway(how % 4, frame.data());
  } else if (how < 200) {
    EncodeIdle(how % 4, frame.data());
  } else if (how >= 228 && kind_.has_stores) {
    EncodeMoved(frame.data());
  } else {
    EncodeCancel(id, frame.data());
  }
  return frame;
}

Bytes HostileServer::CallerFrame() {
  const uint8_t how = input_.U8();
  const uint32_t slot = how / 8 % asked_.size();
  Bytes frame(kCallHeaderBytes);
  const auto append = [&frame](const std::string& body) {
    frame.resize(kCallHeaderBytes + body.size());
    std::memcpy(frame.data() + kCallHeaderBytes, body.data(), body.size());
  };
  switch (how % 8) {
    case 0:
    case 1:
      append(Body());
      EncodeRequest({{slot, ++asked_[slot]}, static_cast<uint16_t>(how / 32), 0}, frame.data());
      break;
    case 2:
      EncodeCancel({slot, asked_[slot]}, frame.data());
      break;
    case 3:
      EncodeOpen({{slot, ++opened_[slot]}, /*method=*/7}, frame.data());
      break;
    case 4:
      EncodeStreamCancel({slot, opened_[slot]}, frame.data());
      break;
    case 5:
      append(PeerCallingHello().SerializeAsString());
      EncodePeerFrame(PeerFrameKind::kBegin, frame.data());
      asked_ = opened_ = {};
      break;
    case 6:
      EncodePeerFrame(PeerFrameKind::kEnd, frame.data());
      break;
    default:
      EncodePeerFrame(PeerFrameKind::kEnded, frame.data());
  }
  return frame;
}

Bytes HostileServer::AnyFrame() {
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
  } else if (kind < 250 && !kind_.peer_of.empty()) {
    frame = CallerFrame();
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

void HostileServer::Send(const Bytes& frame) {
  if (speaker().connection == nullptr) return;
  const MessageSpace space = speaker().connection->Append(frame.size());
  if (space.data == nullptr) return Settle();  // no room
  if (!frame.empty()) std::memcpy(space.data, frame.data(), frame.size());
}

}  // namespace weft::test
