#include "c/status.h"

#include <utility>

#include "absl/status/statusor.h"
#include "core/status.h"
#include "core/strings.h"
#include "weft/status.h"

namespace weft::c {

weft_status* ToC(absl::Status&& status) {
  if (status.ok()) return nullptr;
  std::string message(ToStd(status.message()));
  return new weft_status{std::move(status), std::move(message)};
}

absl::Status FromC(weft_status* status) {
  if (status == nullptr) return absl::OkStatus();
  absl::Status taken = std::move(status->status);
  delete status;
  return taken;
}

weft_status* Missing(std::string_view function, std::string_view what) {
  return ToC(Invalid(function, StrCat(what, " is NULL")));
}

absl::Status Invalid(std::string_view function, std::string_view why) {
  return absl::InvalidArgumentError(StrCat(function, "(): ", why));
}

absl::Status CheckBytes(std::string_view function, std::string_view what, weft_bytes bytes) {
  if (AreBytes(bytes)) return absl::OkStatus();
  return Invalid(function, StrCat(what, " has ", bytes.size, " bytes at NULL"));
}

absl::Status CheckOptionsSize(std::string_view type, size_t size, size_t known) {
  constexpr size_t kUnit = 8;  // no field lies across two of these
  if (size > known) {
    return absl::InvalidArgumentError(
        StrCat(type, ": struct_size is ", size, ", and this libweft_c knows ", known,
               " bytes: the program was built with a newer weft/c.h; install that Weft"));
  }
  if (size < sizeof(size_t) || size % kUnit != 0) {
    return absl::InvalidArgumentError(StrCat(type, ": struct_size is ", size, "; set it to sizeof(",
                                             type, "), which is ", known));
  }
  return absl::OkStatus();
}

absl::Status CheckReserved(std::string_view type, uint32_t reserved) {
  if (reserved == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(type, ": reserved is ", reserved, "; set all of it to zero first"));
}

absl::Status ReadSecurity(const weft_security* given, std::optional<SecurityOptions>* security) {
  if (given == nullptr) return absl::OkStatus();
  weft_security from;
  WEFT_RETURN_IF_ERROR(ReadOptions("weft_security", given, &from));
  WEFT_RETURN_IF_ERROR(CheckReserved("weft_security", from.reserved));
  const std::pair<const char*, weft_bytes> texts[] = {{"psk_secret", from.psk_secret},
                                                      {"certificate_pem", from.certificate_pem},
                                                      {"key_pem", from.key_pem},
                                                      {"roots_pem", from.roots_pem}};
  for (const auto& [name, bytes] : texts) {
    if (AreBytes(bytes)) continue;
    return absl::InvalidArgumentError(StrCat("weft_security: ", name, " has no bytes"));
  }
  SecurityOptions& to = security->emplace();
  to.certificate_file = StringOf(from.certificate_file);
  to.key_file = StringOf(from.key_file);
  to.roots_file = StringOf(from.roots_file);
  to.server_name = StringOf(from.server_name);
  to.expected_uri = StringOf(from.expected_uri);
  to.psk_name = StringOf(from.psk_name);
  to.psk_secret = std::string(TextOf(from.psk_secret));
  to.require_client_certificate = from.admit_anonymous_clients == 0;
  to.require_encryption = from.require_encryption != 0;
  to.kernel_tls = from.kernel_tls != 0;
  to.certificate_pem = std::string(TextOf(from.certificate_pem));
  to.key_pem = std::string(TextOf(from.key_pem));
  to.roots_pem = std::string(TextOf(from.roots_pem));
  return absl::OkStatus();
}

absl::Status ReadPaths(const char* paths, LinkOptions* link) {
  if (paths == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(link->paths, ParsePathList(paths));
  return absl::OkStatus();
}

}  // namespace weft::c

weft_status* weft_status_new(int code, const char* message) {
  if (code == WEFT_OK) return nullptr;
  if (code < WEFT_OK || code > WEFT_UNAUTHENTICATED) code = WEFT_UNKNOWN;
  return weft::c::ToC(
      absl::Status(static_cast<absl::StatusCode>(code), message == nullptr ? "" : message));
}

int weft_status_code(const weft_status* status) {
  return status == nullptr ? WEFT_OK : static_cast<int>(status->status.code());
}

const char* weft_status_message(const weft_status* status) {
  return status == nullptr ? "" : status->message.c_str();
}

int weft_status_delivery(const weft_status* status) {
  return status == nullptr ? WEFT_DELIVERY_UNKNOWN
                           : static_cast<int>(weft::DeliveryOf(status->status));
}

void weft_status_free(weft_status* status) { delete status; }
