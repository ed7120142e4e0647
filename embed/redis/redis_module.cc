// A Redis module that serves Redis' commands over Weft from Redis' own event loop.
//
//   redis-server --loadmodule ./weft_redis_module.so 127.0.0.1:7000     (or unix:/path)
//
// Weft starts no thread here. The engine makes turns before each sleep of the loop, in which
// requests are taken and carried out; their replies leave when the loop has slept: between the two
// Redis writes its log of commands, so what a client has been told stands there as surely as with
// Redis' own clients (appendfsync). What comes with the turn in which replies leave is carried out
// then, and answered behind the next write.
//
//   before sleep   engine: requests -> RedisModule_Call() -> executed_
//   Redis          writes the log; sleeps, but not if something was executed
//   after sleep    executed_ -> replies; engine: they leave
//
// There is neither password, access list nor TLS in it: who can connect may run every command that
// a script may, also where Redis itself asks for a password or restricts its users. So it listens
// on this host alone, at 127.0.0.1 or, better, at a Unix socket whose folder says who may.
//
// Threads: Redis' main one. Lifetime: the process's; the module cannot be unloaded. In a child that
//   Redis has forked, to save, the loop does not run, and nothing here does.
// Errors: the module is not loaded, and Redis' log says why.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/status.h"
#include "core/strings.h"
#include "embed/redis/redis_api.h"
#include "embed/redis/redis_commands.weft.h"
#include "weft/engine.h"
#include "weft/server.h"

namespace weft::embed::redis {
namespace {

// Turns of the engine before Redis' own clients have theirs.
constexpr int kMaxTurns = 16;
// Elements inside of elements of a reply: Redis' own client libraries take as many.
constexpr int kMaxDepth = 9;
// Of a command's words: Redis' own bound of a multi bulk length.
constexpr int kMaxWords = 1024 * 1024;

Api api;

void Fill(CallReply* from, int depth, Reply* to) {
  const auto text = [from] {
    size_t bytes = 0;
    const char* const start = api.CallReplyStringPtr(from, &bytes);
    return start == nullptr ? std::string_view() : std::string_view(start, bytes);
  };
  switch (static_cast<ReplyType>(api.CallReplyType(from))) {
    case ReplyType::kString:
      return to->set_text(text().data(), text().size());
    case ReplyType::kError:
      return to->set_error(text().data(), text().size());
    case ReplyType::kInteger:
      return to->set_integer(api.CallReplyInteger(from));
    case ReplyType::kArray: {
      auto* const elements = to->mutable_elements();
      if (depth == kMaxDepth) return to->set_error("ERR the reply is nested too deeply for Weft");
      for (size_t i = 0; i < api.CallReplyLength(from); ++i) {
        Fill(api.CallReplyArrayElement(from, i), depth + 1, elements->add_of());
      }
      return;
    }
    case ReplyType::kNull:
    case ReplyType::kUnknown:
      return;
  }
}

class CommandsService final : public Commands::Service {
 public:
  void StartExecute(UnaryCall<Command, Reply> call) override {
    if (call.request().words().empty() || call.request().words_size() > kMaxWords) {
      return call.Finish(absl::InvalidArgumentError(StrCat(
          "a command has 1 to ", kMaxWords, " words, and not ", call.request().words_size())));
    }
    // It has stopped its clients' writes (CLIENT PAUSE, FAILOVER), and a write now would end it.
    if (api.AvoidReplicaTraffic() != 0)
      return Refuse(std::move(call), "Redis has paused its clients");
    if (held_bytes_ > kMaxHeldBytes) return Refuse(std::move(call), "too many replies wait");
    std::vector<String*> words;
    words.reserve(static_cast<size_t>(call.request().words_size()));
    for (const std::string& word : call.request().words()) {
      words.push_back(api.CreateString(context_, word.data(), word.size()));
    }
    // "!": replicas and the log get it too; "S": not what belongs to a client's connection; "M":
    // not what needs memory where there is none left; "E": refusals are replies; "v": an array of
    // words.
    CallReply* const reply = api.Call(context_, call.request().words(0).c_str(), "!SMEv",
                                      words.data() + 1, words.size() - 1);
    for (String* const word : words) api.FreeString(context_, word);
    if (reply == nullptr) {
      call.reply()->set_error("ERR Redis does not run this command for a module");
    } else {
      Fill(reply, 0, call.reply());
      api.FreeCallReply(reply);
    }
    Answer(std::move(call));
  }

  // What Redis propagates of a command belongs to the context of the event it was run in.
  void set_context(Context* context) { context_ = context; }
  bool has_executed() const { return !executed_.empty(); }
  void SendReplies() {
    held_bytes_ = 0;
    for (auto& call : std::exchange(executed_, {})) call.Finish(absl::OkStatus());
  }

 private:
  // Of the replies to what one turn of the loop has run, in bytes: a dozen large values. What comes
  // behind them is refused until they have been sent; a Server counts them only from then on.
  static constexpr size_t kMaxHeldBytes = size_t{64} << 20;

  void Refuse(UnaryCall<Command, Reply> call, std::string_view why) {
    call.reply()->set_error(StrCat("BUSY ", why, "; the command was not run, try again"));
    Answer(std::move(call));
  }
  void Answer(UnaryCall<Command, Reply> call) {
    held_bytes_ += call.reply()->ByteSizeLong();
    executed_.push_back(std::move(call));
  }

  Context* context_ = nullptr;
  size_t held_bytes_ = 0;  // of executed_
  std::vector<UnaryCall<Command, Reply>> executed_;
};

bool IsOfThisHost(std::string_view address) {
  for (const std::string_view prefix : {"unix:", "127.", "[::1]:"}) {
    if (address.substr(0, prefix.size()) == prefix) return true;
  }
  return false;
}

class Module {
 public:
  static absl::StatusOr<std::unique_ptr<Module>> Start(const std::string& address) {
    if (!IsOfThisHost(address)) {
      return absl::InvalidArgumentError(StrCat(
          "the address is ", address, "; it has no password, so it must be one of this host: ",
          "unix:/PATH, 127.0.0.1:PORT or [::1]:PORT"));
    }
    EngineOptions options;
    options.drive = EngineOptions::Drive::kExternal;
    WEFT_ASSIGN_OR_RETURN(auto engine, OpenNetworkEngine(options));
    WEFT_ASSIGN_OR_RETURN(auto server, Server::Create(*engine));
    std::unique_ptr<Module> module(new Module(std::move(engine), std::move(server)));
    WEFT_RETURN_IF_ERROR(module->server_->AddService(&module->service_));
    WEFT_RETURN_IF_ERROR(module->server_->Listen(address));
    // It ends the loop's sleep; the work is done before the next one.
    const auto nothing = [](int, void*, int) {};
    if (api.EventLoopAdd(module->engine_->fd(), kReadable, nothing, nullptr) != kOk) {
      return absl::ResourceExhaustedError(
          "Redis' event loop takes no more descriptors: maxclients");
    }
    return module;
  }

  ~Module() { api.EventLoopDel(engine_->fd(), kReadable); }

  std::string address() const { return server_->address(); }

  void BeforeSleep(Context* context) {
    service_.set_context(context);
    int turns = 0;
    while (turns < kMaxTurns && engine_->Poll() > 0) ++turns;
    if (turns == kMaxTurns || service_.has_executed() || !engine_->Arm()) {
      api.EventLoopAddOneShot([](void*) {}, nullptr);  // it does not sleep
    } else {
      WakeForTimer(context);
    }
  }

  void AfterSleep(Context* context) {
    if (!service_.has_executed()) return;
    service_.set_context(context);
    service_.SendReplies();
    engine_->Poll();
  }

 private:
  Module(std::unique_ptr<Engine> engine, std::unique_ptr<Server> server)
      : engine_(std::move(engine)), server_(std::move(server)) {}

  void WakeForTimer(Context* context) {
    const uint64_t now_ns = engine_->clock().NowNs();
    const uint64_t timer_ns = engine_->NextTimerNs();
    if (timer_ns == kNever || timer_ns >= timer_set_for_ns_) return;
    const uint64_t left_ms = timer_ns > now_ns ? (timer_ns - now_ns) / 1'000'000 + 1 : 1;
    if (timer_set_for_ns_ != kNever) api.StopTimer(context, timer_, nullptr);
    const auto wake = [](Context*, void* self) {
      static_cast<Module*>(self)->timer_set_for_ns_ = kNever;
    };
    timer_ = api.CreateTimer(context, static_cast<long long>(left_ms), wake, this);
    timer_set_for_ns_ = timer_ns;
  }

  const std::unique_ptr<Engine> engine_;
  CommandsService service_;
  const std::unique_ptr<Server> server_;
  TimerId timer_ = 0;
  uint64_t timer_set_for_ns_ = kNever;
};

Module* loaded = nullptr;  // for the rest of the process's life

void OnLoop(Context* context, Event, uint64_t subevent, void*) {
  subevent == kBeforeSleep ? loaded->BeforeSleep(context) : loaded->AfterSleep(context);
}

// What a module is loaded with: words of the configuration behind its file's name.
int Load(Context* context, String** words, int count) {
  // Without the interface there is no log to say so in.
  if (LoadRedisApi(context, &api) != nullptr) return kError;
  api.SetModuleAttribs(context, "weft", /*version=*/1, kApiVersion);
  if (count != 1) {
    api.Log(context, "warning", "weft: one word is needed, the address to serve at");
    return kError;
  }
  size_t bytes = 0;
  const char* const address = api.StringPtrLen(words[0], &bytes);
  absl::StatusOr<std::unique_ptr<Module>> module = Module::Start(std::string(address, bytes));
  if (!module.ok()) {
    api.Log(context, "warning", "weft: %s", std::string(module.status().message()).c_str());
    return kError;
  }
  if (api.SubscribeToServerEvent(context, kEventLoop, OnLoop) != kOk) {
    api.Log(context, "warning", "weft: Redis does not tell modules of its event loop");
    return kError;
  }
  loaded = module->release();
  api.Log(context, "notice", "weft: listening on %s", loaded->address().c_str());
  return kOk;
}

}  // namespace
}  // namespace weft::embed::redis

// The names that Redis looks for.
extern "C" __attribute__((visibility("default"))) int RedisModule_OnLoad(
    weft::embed::redis::Context* context, weft::embed::redis::String** words, int count) {
  return weft::embed::redis::Load(context, words, count);
}

// Its threads' storage and the loop's callbacks outlive an unload.
extern "C" __attribute__((visibility("default"))) int RedisModule_OnUnload(
    weft::embed::redis::Context* context) {
  (void)context;
  return weft::embed::redis::kError;
}
