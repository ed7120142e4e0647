#include "c/methods.h"

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "core/fork_guard.h"
#include "core/process_wide.h"
#include "core/strings.h"

namespace weft::c {
namespace {

constexpr size_t kMostNameBytes = 255;

bool IsNameByte(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= '0' && byte <= '9') || byte == '_';
}

bool IsName(std::string_view name, bool may_have_parts) {
  bool part_is_empty = true;
  for (const char byte : name) {
    if (byte == '.' && may_have_parts && !part_is_empty) {
      part_is_empty = true;
    } else if (IsNameByte(byte)) {
      part_is_empty = false;
    } else {
      return false;
    }
  }
  return !part_is_empty && name.size() <= kMostNameBytes;
}

struct InternedMethod {
  std::string service;
  std::string name;
  MethodDescriptor method;
  ServiceDescriptor descriptor;
};

using Key = std::tuple<std::string, std::string, int, int>;

struct Interned {
  ProcessMutex mutex;
  std::map<Key, std::unique_ptr<InternedMethod>> methods;  // guarded by mutex
};

Interned& TheInterned() {
  static constinit ProcessWide<Interned> interned;
  return interned.Get();
}

}  // namespace

absl::Status CheckServiceName(std::string_view name) {
  if (IsName(name, /*may_have_parts=*/true)) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(
      "\"", name.substr(0, kMostNameBytes), "\" is no full name of a service, as \"kv.Kv\" is: ",
      "letters, digits and _ in parts with a . between, up to ", kMostNameBytes, " bytes"));
}

absl::Status CheckMethodName(std::string_view name) {
  if (IsName(name, /*may_have_parts=*/false)) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("\"", name.substr(0, kMostNameBytes),
                                           "\" is no name of a method, as \"Get\" is: letters, ",
                                           "digits and _, up to ", kMostNameBytes, " bytes"));
}

absl::Status CheckMethodKind(int kind, int idempotency) {
  if (kind < WEFT_UNARY || kind > WEFT_ONE_WAY) {
    return absl::InvalidArgumentError(
        StrCat("kind of a method is ", kind, "; it is WEFT_UNARY, ..., WEFT_ONE_WAY: 1 to 5"));
  }
  if (idempotency < WEFT_ONCE || idempotency > WEFT_IDEMPOTENT) {
    return absl::InvalidArgumentError(
        StrCat("idempotency of a method is ", idempotency,
               "; it is WEFT_ONCE, WEFT_NO_SIDE_EFFECTS or WEFT_IDEMPOTENT: 0 to 2"));
  }
  return absl::OkStatus();
}

absl::StatusOr<const ServiceDescriptor*> InternMethod(std::string_view service,
                                                      std::string_view method, int kind,
                                                      int idempotency) {
  Interned& interned = TheInterned();
  const std::lock_guard lock(interned.mutex);
  Key key(service, method, kind, idempotency);
  if (const auto known = interned.methods.find(key); known != interned.methods.end()) {
    return &known->second->descriptor;
  }
  if (interned.methods.size() >= kMostInterned) {
    return absl::ResourceExhaustedError(
        StrCat("this process has named ", kMostInterned, " methods, and ", service, ".", method,
               " is one more: name each once, and keep its number"));
  }
  auto made = std::make_unique<InternedMethod>();
  made->service = std::string(service);
  made->name = std::string(method);
  made->method.name = made->name;
  made->method.kind = static_cast<MethodKind>(kind);
  made->method.idempotency = static_cast<Idempotency>(idempotency);
  made->descriptor.full_name = made->service;
  made->descriptor.methods = {&made->method, 1};
  const ServiceDescriptor* const descriptor = &made->descriptor;
  interned.methods.emplace(std::move(key), std::move(made));
  return descriptor;
}

}  // namespace weft::c
