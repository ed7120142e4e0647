// A Redis module that serves Redis' commands over Weft from Redis' own event loop.
//
//   redis-server --loadmodule ./weft_redis_module.so 127.0.0.1:7000     (or unix:/path)
//   redis-server --loadmodule ./weft_redis_module.so unix:/path uid:1000 app anyone guest
//
// Behind the address stand WHOM USER, WHOM USER, ...: commands of WHOM, as a policy's rules name a
// client (weft/authorization.h: uid:1000, anyone), run as that user of Redis' access lists (ACL).
// The first that names a client counts. Who is named by none, whose user is not there or is off, or
// may not run the command on these keys, gets PERMISSION_DENIED, and nothing has run. Redis' log of
// what its users were refused (ACL LOG) has the last of these, under the user's name.
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
// Without users behind the address who can connect may run every command that a script may, also
// where Redis itself asks for a password or restricts its users. There is no TLS. So it listens on
// this host alone, at 127.0.0.1 or, better, at a Unix socket whose folder says who may.
//
// Threads: Redis' main one. Lifetime: the process's; the module cannot be unloaded. In a child that
//   Redis has forked, to save, the loop does not run, and nothing here does.
// Errors: the module is not loaded, and Redis' log says why. Weft's warnings stand there as well.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "core/status.h"
#include "core/strings.h"
#include "embed/redis/redis_api.h"
#include "embed/redis/redis_commands.weft.h"
#include "weft/authorization.h"
#include "weft/engine.h"
#include "weft/log.h"
#include "weft/security.h"
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

// Whose commands run as which of Redis' users.
class Users {
 public:
  // `words`: WHOM USER, WHOM USER, ...
  static absl::StatusOr<Users> Parse(const std::vector<std::string>& words) {
    if (words.size() % 2 != 0) {
      return absl::InvalidArgumentError(
          StrCat("behind ", words.back(), " a user of Redis' is missing: WHOM USER, WHOM USER"));
    }
    Users users;
    for (size_t i = 0; i < words.size(); i += 2) {
      auto whom = AccessPolicy::Parse(StrCat("allow \"", words[i], "\" *"));
      if (!whom.ok()) return Annotate(whom.status(), words[i]);
      users.users_.push_back({*std::move(whom), words[i + 1]});
    }
    return users;
  }

  // None: all may do everything.
  bool empty() const { return users_.empty(); }
  // Null: nobody.
  const std::string* For(const PeerIdentity& client) const {
    for (const auto& [whom, name] : users_) {
      if (whom.Decide(client, "", "").allowed) return &name;
    }
    return nullptr;
  }

 private:
  std::vector<std::pair<AccessPolicy, std::string>> users_;
};

// A user as he is now: Redis may change or delete him between two commands.
class ActingUser {
 public:
  // `name` outlives it.
  ActingUser(Context* context, const std::string& name) : name_(name) {
    String* const word = api.CreateString(context, name.data(), name.size());
    user_ = api.GetModuleUserFromUserName(word);
    api.FreeString(context, word);
    if (user_ == nullptr) return;
    String* const rules = api.GetModuleUserACLString(user_);
    size_t bytes = 0;
    const char* const text = api.StringPtrLen(rules, &bytes);
    is_off_ = std::string_view(text, bytes).substr(0, 3) == "off";  // or "on", before all else
    api.FreeString(context, rules);
  }
  ActingUser(const ActingUser&) = delete;
  ActingUser& operator=(const ActingUser&) = delete;
  ~ActingUser() {
    if (user_ != nullptr) api.FreeModuleUser(user_);
  }

  const std::string& name() const { return name_; }
  User* get() const { return user_; }
  bool may_act() const { return user_ != nullptr && !is_off_; }

 private:
  const std::string& name_;
  User* user_ = nullptr;
  bool is_off_ = false;
};

// A command's words as strings of Redis'.
class Words {
 public:
  // `context` outlives it.
  Words(Context* context, const Command& command) : context_(context) {
    words_.reserve(static_cast<size_t>(command.words_size()));
    for (const std::string& word : command.words()) {
      words_.push_back(api.CreateString(context, word.data(), word.size()));
    }
  }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  ~Words() {
    for (String* const word : words_) api.FreeString(context_, word);
  }

  size_t size() const { return words_.size(); }
  String** data() { return words_.data(); }
  String* operator[](size_t i) const { return words_[i]; }

 private:
  Context* const context_;
  std::vector<String*> words_;
};

// Of those with a channel that a module may call.
bool IsPublish(const Words& words) {
  if (words.size() < 2) return false;
  size_t bytes = 0;
  const char* const name = api.StringPtrLen(words[0], &bytes);
  const std::string text = absl::AsciiStrToLower(absl::string_view(name, bytes));
  return text == "publish" || text == "spublish";
}

// What a command needs and its user is refused.
struct Denial {
  Refused what;
  int at;  // of the command's words
};

// Redis asks the same again before it runs the command, but 7.0 logs what it refuses then under the
// name of the default user.
std::optional<Denial> FindDenial(User* user, Words& words) {
  const auto count = static_cast<int>(words.size());
  int keys = 0;
  int* flags = nullptr;
  errno = 0;
  int* const places = api.GetCommandKeysWithFlags(nullptr, words.data(), count, &keys, &flags);
  // No command, or not its number of words: Redis says so itself. (It ends when it is asked about
  // keys of a command that has too few words.)
  if (places == nullptr && errno != 0) return std::nullopt;
  std::optional<Denial> denial;
  if (api.ACLCheckCommandPermissions(user, words.data(), count) != kOk) {
    denial = {Refused::kCommand, 0};
    for (int i = keys; i-- > 0;) {
      // Of most commands Redis does not tell for what.
      const int wanted = (flags[i] & kKeyAccess) != 0 ? flags[i] & kKeyAccess : kKeyAccess;
      String* const key = words[static_cast<size_t>(places[i])];
      if (api.ACLCheckKeyPermissions(user, key, wanted) != kOk) denial = {Refused::kKey, places[i]};
    }
    if (IsPublish(words) && api.ACLCheckChannelPermissions(user, words[1], kPublish) != kOk) {
      denial = {Refused::kChannel, 1};
    }
  }
  if (places != nullptr) {
    api.Free(places);
    api.Free(flags);
  }
  return denial;
}

class CommandsService final : public Commands::Service {
 public:
  explicit CommandsService(Users users) : users_(std::move(users)) {}

  void StartExecute(UnaryCall<Command, Reply> call) override {
    if (call.request().words().empty() || call.request().words_size() > kMaxWords) {
      return call.Finish(absl::InvalidArgumentError(StrCat(
          "a command has 1 to ", kMaxWords, " words, and not ", call.request().words_size())));
    }
    // Redis' API takes the name as a C string: what is asked for and what is run are to be one.
    if (call.request().words(0).find('\0') != std::string::npos) {
      return call.Finish(absl::InvalidArgumentError("the name of the command has a byte 0"));
    }
    // It has stopped its clients' writes (CLIENT PAUSE, FAILOVER), and a write now would end it.
    if (api.AvoidReplicaTraffic() != 0)
      return Refuse(std::move(call), "Redis has paused its clients");
    if (held_bytes_ > kMaxHeldBytes) return Refuse(std::move(call), "too many replies wait");
    if (users_.empty()) return Run(std::move(call), nullptr);
    const PeerIdentity& client = call.context().path().identity;
    const std::string* const name = users_.For(client);
    if (name == nullptr) {
      return call.Finish(absl::PermissionDeniedError(
          StrCat("no user of Redis' is for this client: ", IdentityText(client))));
    }
    const ActingUser user(context_, *name);
    if (!user.may_act()) {
      return call.Finish(absl::PermissionDeniedError(
          StrCat("Redis' user ", *name, user.get() == nullptr ? " is not there" : " is off")));
    }
    Run(std::move(call), &user);
  }

  // What Redis propagates of a command belongs to the context of the event it was run in.
  void set_context(Context* context) { context_ = context; }
  // For commands of users, inside of an event: Redis 7.0 ends when it refuses such a one in the
  // event's own context, for it logs the name of that one's user, and there is none.
  void set_acting_context(Context* context) { acting_context_ = context; }
  bool has_executed() const { return !executed_.empty(); }
  void SendReplies() {
    held_bytes_ = 0;
    for (auto& call : std::exchange(executed_, {})) call.Finish(absl::OkStatus());
  }

 private:
  // Of the replies to what one turn of the loop has run, in bytes: a dozen large values. What comes
  // behind them is refused until they have been sent; a Server counts them only from then on.
  static constexpr size_t kMaxHeldBytes = size_t{64} << 20;

  static absl::Status DenialError(const std::string& user, Refused what) {
    return absl::PermissionDeniedError(
        StrCat("Redis' user ", user,
               what == Refused::kKey       ? " may not access one of the command's keys"
               : what == Refused::kChannel ? " may not publish to this channel"
                                           : " may not run this command"));
  }

  // `user`: null: who may everything.
  void Run(UnaryCall<Command, Reply> call, const ActingUser* user) {
    Words words(context_, call.request());
    // "!": replicas and the log get it too; "S": not what belongs to a client's connection; "M":
    // not what needs memory where there is none left; "E": refusals are replies; "v": an array of
    // words; "C": as the context's user, as his rules permit it.
    const char* const name = call.request().words(0).c_str();
    CallReply* reply = nullptr;
    bool is_denied = false;
    const auto denial = user == nullptr ? std::optional<Denial>() : FindDenial(user->get(), words);
    if (denial.has_value()) {
      String* const object = words[static_cast<size_t>(denial->at)];
      api.ACLAddLogEntry(acting_context_, user->get(), object, static_cast<int>(denial->what));
      return call.Finish(DenialError(user->name(), denial->what));
    }
    if (user == nullptr) {
      reply = api.Call(context_, name, "!SMEv", words.data() + 1, words.size() - 1);
    } else {
      api.SetContextUser(acting_context_, user->get());
      errno = 0;
      reply = api.Call(acting_context_, name, "!SMECv", words.data() + 1, words.size() - 1);
      is_denied = errno == EACCES;
      api.SetContextUser(acting_context_, nullptr);
    }
    if (reply == nullptr) {
      call.reply()->set_error("ERR Redis does not run this command for a module");
    } else {
      Fill(reply, 0, call.reply());
      api.FreeCallReply(reply);
    }
    // A command that was run may have left its own errno.
    if (is_denied && call.reply()->has_error()) {
      return call.Finish(absl::PermissionDeniedError(call.reply()->error()));
    }
    Answer(std::move(call));
  }

  void Refuse(UnaryCall<Command, Reply> call, std::string_view why) {
    call.reply()->set_error(StrCat("BUSY ", why, "; the command was not run, try again"));
    Answer(std::move(call));
  }
  void Answer(UnaryCall<Command, Reply> call) {
    held_bytes_ += call.reply()->ByteSizeLong();
    executed_.push_back(std::move(call));
  }

  const Users users_;
  Context* context_ = nullptr;
  Context* acting_context_ = nullptr;
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
  // `words`: of the configuration, the first is the address.
  static absl::StatusOr<std::unique_ptr<Module>> Start(Context* context,
                                                       std::vector<std::string> words) {
    if (words.empty()) {
      return absl::InvalidArgumentError("a word is missing, the address to serve at");
    }
    const std::string address = std::move(words.front());
    words.erase(words.begin());
    if (!IsOfThisHost(address)) {
      return absl::InvalidArgumentError(
          StrCat("the address is ", address, "; there is no TLS, so it must be one of this host: ",
                 "unix:/PATH, 127.0.0.1:PORT or [::1]:PORT"));
    }
    WEFT_ASSIGN_OR_RETURN(Users users, Users::Parse(words));
    EngineOptions options;
    options.drive = EngineOptions::Drive::kExternal;
    WEFT_ASSIGN_OR_RETURN(auto engine, OpenNetworkEngine(options));
    WEFT_ASSIGN_OR_RETURN(auto server, Server::Create(*engine));
    std::unique_ptr<Module> module(
        new Module(std::move(engine), std::move(users), std::move(server)));
    module->service_.set_acting_context(api.GetDetachedThreadSafeContext(context));
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
  Module(std::unique_ptr<Engine> engine, Users users, std::unique_ptr<Server> server)
      : engine_(std::move(engine)), service_(std::move(users)), server_(std::move(server)) {}

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

// Into Redis' log, where its `loglevel` counts.
void LogToRedis(const LogRecord& record) {
  const char* const level = record.level >= LogLevel::kWarning ? "warning" : "verbose";
  api.Log(/*context=*/nullptr, level, "weft: %s", std::string(record.text).c_str());
}

void OnLoop(Context* context, Event, uint64_t subevent, void*) {
  subevent == kBeforeSleep ? loaded->BeforeSleep(context) : loaded->AfterSleep(context);
}

// What a module is loaded with: words of the configuration behind its file's name.
int Load(Context* context, String** given, int count) {
  // Without the interface there is no log to say so in.
  if (LoadRedisApi(context, &api) != nullptr) return kError;
  api.SetModuleAttribs(context, "weft", /*version=*/1, kApiVersion);
  SetLogSink(LogToRedis);
  std::vector<std::string> words;
  for (int i = 0; i < count; ++i) {
    size_t bytes = 0;
    const char* const text = api.StringPtrLen(given[i], &bytes);
    words.emplace_back(text, bytes);
  }
  absl::StatusOr<std::unique_ptr<Module>> module = Module::Start(context, std::move(words));
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
