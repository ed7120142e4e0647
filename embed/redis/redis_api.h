// What Weft's module uses of Redis' interface for modules (redis.io, "Modules API reference"):
// Debian has no header of it. Redis hands each function out by its name, and the context that a
// module is loaded with begins with the function that does so.
//
// Threads: Redis' main one. Lifetime: the functions are there as long as the process.
// Errors: LoadRedisApi() says which function this Redis has not.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::embed::redis {

struct Context;
struct String;
struct CallReply;
struct User;

constexpr int kOk = 0;
constexpr int kError = 1;
constexpr int kApiVersion = 1;
constexpr int kReadable = 1;  // of a descriptor in the event loop

enum class ReplyType : int {
  kUnknown = -1,
  kString = 0,
  kError = 1,
  kInteger = 2,
  kArray = 3,
  kNull = 4,
};

// What a key is needed for, and what a channel, to ask whether a user may.
constexpr int kKeyAccess = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7;  // read, update, insert, delete
constexpr int kPublish = 1 << 1;

// What a user is refused, as Redis' log of that numbers it.
enum class Refused : int { kCommand = 1, kKey = 2, kChannel = 3 };

// Since Redis 7.0. Subevents: the loop is about to sleep, and has slept. Redis writes its log of
// commands (appendonly) between the two.
struct Event {
  uint64_t id;
  uint64_t version;
};
constexpr Event kEventLoop = {15, 1};
constexpr uint64_t kBeforeSleep = 0;
constexpr uint64_t kAfterSleep = 1;

using EventCallback = void (*)(Context*, Event, uint64_t subevent, void* data);
using LoopCallback = void (*)(int fd, void* arg, int mask);
using OnceCallback = void (*)(void* arg);
using TimerCallback = void (*)(Context*, void* arg);
using TimerId = uint64_t;

// NAME(result, Redis' name behind "RedisModule_", parameters)
#define WEFT_REDIS_FUNCTIONS(NAME)                                                 \
  NAME(void, SetModuleAttribs, (Context*, const char* name, int version, int api)) \
  NAME(void, Log, (Context*, const char* level, const char* format, ...))          \
  NAME(int, AvoidReplicaTraffic, ())                                               \
  NAME(int, SubscribeToServerEvent, (Context*, Event, EventCallback))              \
  NAME(int, EventLoopAdd, (int fd, int mask, LoopCallback, void* arg))             \
  NAME(int, EventLoopDel, (int fd, int mask))                                      \
  NAME(int, EventLoopAddOneShot, (OnceCallback, void* arg))                        \
  NAME(TimerId, CreateTimer, (Context*, long long ms, TimerCallback, void* arg))   \
  NAME(int, StopTimer, (Context*, TimerId, void** arg))                            \
  NAME(String*, CreateString, (Context*, const char* text, size_t bytes))          \
  NAME(void, FreeString, (Context*, String*))                                      \
  NAME(const char*, StringPtrLen, (const String*, size_t* bytes))                  \
  NAME(User*, GetModuleUserFromUserName, (String*))                                \
  NAME(String*, GetModuleUserACLString, (User*))                                   \
  NAME(void, FreeModuleUser, (User*))                                              \
  NAME(Context*, GetDetachedThreadSafeContext, (Context*))                         \
  NAME(void, SetContextUser, (Context*, const User*))                              \
  NAME(int*, GetCommandKeysWithFlags,                                              \
       (Context*, String * *words, int count, int* keys, int** flags))             \
  NAME(void, Free, (void*))                                                        \
  NAME(int, ACLCheckCommandPermissions, (User*, String * *words, int count))       \
  NAME(int, ACLCheckKeyPermissions, (User*, String * key, int flags))              \
  NAME(int, ACLCheckChannelPermissions, (User*, String * channel, int flags))      \
  NAME(int, ACLAddLogEntry, (Context*, User*, String * object, int refused))       \
  NAME(CallReply*, Call, (Context*, const char* command, const char* format, ...)) \
  NAME(void, FreeCallReply, (CallReply*))                                          \
  NAME(int, CallReplyType, (CallReply*))                                           \
  NAME(long long, CallReplyInteger, (CallReply*))                                  \
  NAME(size_t, CallReplyLength, (CallReply*))                                      \
  NAME(CallReply*, CallReplyArrayElement, (CallReply*, size_t index))              \
  NAME(const char*, CallReplyStringPtr, (CallReply*, size_t * bytes))

struct Api {
#define WEFT_DECLARE(result, name, parameters) result(*name) parameters = nullptr;
  WEFT_REDIS_FUNCTIONS(WEFT_DECLARE)
#undef WEFT_DECLARE
};

// Null: `api` is complete. Else the name of a function that this Redis does not have.
inline const char* LoadRedisApi(Context* context, Api* api) {
  using Getter = int (*)(const char* name, void* function);
  const auto get = *reinterpret_cast<const Getter*>(context);
#define WEFT_GET(result, name, parameters) \
  if (get("RedisModule_" #name, &api->name) != kOk) return #name;
  WEFT_REDIS_FUNCTIONS(WEFT_GET)
#undef WEFT_GET
  return nullptr;
}

}  // namespace weft::embed::redis
