#include "transport/tls/tls_errors.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "core/status.h"
#include "core/strings.h"

namespace weft {
namespace {

// Reasons from here on are alerts that the peer has sent.
constexpr int kFirstAlert = SSL_AD_REASON_OFFSET;

}  // namespace

std::string TakeTlsErrors() {
  std::string text;
  const char* data = nullptr;
  int flags = 0;
  while (const unsigned long error = ERR_get_error_all(nullptr, nullptr, nullptr, &data, &flags)) {
    const char* const reason = ERR_reason_error_string(error);
    if (!text.empty()) text += "; ";
    text += reason != nullptr ? reason : "unknown error";
    if ((flags & ERR_TXT_STRING) != 0 && data != nullptr && *data != '\0') {
      text += StrCat(" (", data, ")");
    }
  }
  return text;
}

bool IsPeersAlert(unsigned long error) { return ERR_GET_REASON(error) >= kFirstAlert; }

absl::StatusCode TlsCodeOf(unsigned long error, bool is_up) {
  // Once it is up, all that is wrong with a record is that somebody has changed it.
  if (is_up && !IsPeersAlert(error)) return absl::StatusCode::kDataLoss;
  if (ERR_GET_LIB(error) != ERR_LIB_SSL) return absl::StatusCode::kUnauthenticated;
  switch (ERR_GET_REASON(error)) {
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_VERSION_TOO_LOW:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
    case SSL_R_NO_APPLICATION_PROTOCOL:
    case SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL:
    case SSL_R_NO_SHARED_CIPHER:
      return absl::StatusCode::kFailedPrecondition;
    default:
      break;
  }
  return absl::StatusCode::kUnauthenticated;
}

std::string TlsRefusal(unsigned long error, const std::string& text) {
  std::string advice;
  if (ERR_GET_REASON(error) == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED) {
    advice =
        "; the server requires a certificate of its clients: set SecurityOptions::"
        "certificate_file and key_file";
  } else if (ERR_GET_REASON(error) == SSL_R_TLSV1_ALERT_UNKNOWN_CA) {
    advice = "; it does not trust who signed our certificate: look at its roots_file";
  }
  return StrCat("TLS: the peer refuses: ", text, advice);
}

std::string ErrnoText(int error) {
  return std::string(StatusFromErrno(error, "it says").message());
}

absl::Status TlsAlertError(uint8_t alert) {
  // The same error number that OpenSSL would have queued for this alert.
  const unsigned long error = ERR_PACK(ERR_LIB_SSL, 0, kFirstAlert + alert);
  const char* const reason = ERR_reason_error_string(error);
  return absl::Status(TlsCodeOf(error, /*is_up=*/true),
                      TlsRefusal(error, reason != nullptr ? reason : "an unknown alert"));
}

}  // namespace weft
