#include "core/status.h"

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "absl/strings/cord.h"
#include "core/strings.h"

namespace weft {
namespace {

absl::StatusCode CodeFromErrno(int err) {
  switch (err) {
    case EINVAL:
    case E2BIG:
    case EDESTADDRREQ:
    case EDOM:
    case EFAULT:
    case EMSGSIZE:
    case ENAMETOOLONG:
    case ENOTTY:
    case EPROTOTYPE:
      return absl::StatusCode::kInvalidArgument;

    case EFBIG:
    case EOVERFLOW:
    case ERANGE:
      return absl::StatusCode::kOutOfRange;

    case EADDRNOTAVAIL:
    case EBADF:
    case EBUSY:
    case EISCONN:
    case EISDIR:
    case ENOTDIR:
    case ENOTEMPTY:
    case ENOTSOCK:
      return absl::StatusCode::kFailedPrecondition;

    case ENODEV:
    case ENOENT:
    case ENXIO:
    case ESRCH:
      return absl::StatusCode::kNotFound;

    case EADDRINUSE:
    case EALREADY:
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;

    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;

    case EDQUOT:
    case EMFILE:
    case EMLINK:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
    case ENOSPC:
      return absl::StatusCode::kResourceExhausted;

    case EAGAIN:
    case ECONNABORTED:
    case ECONNREFUSED:
    case ECONNRESET:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case EINPROGRESS:
    case EINTR:
    case ENETDOWN:
    case ENETRESET:
    case ENETUNREACH:
    case ENOLINK:
    case ENOTCONN:
    case EPIPE:
    case ESHUTDOWN:
      return absl::StatusCode::kUnavailable;

    case EAFNOSUPPORT:
    case ENOPROTOOPT:
    case ENOSYS:
    case EOPNOTSUPP:
    case EPFNOSUPPORT:
    case EPROTONOSUPPORT:
    case ESOCKTNOSUPPORT:
      return absl::StatusCode::kUnimplemented;

    case ETIME:
    case ETIMEDOUT:
      return absl::StatusCode::kDeadlineExceeded;

    case ECANCELED:
      return absl::StatusCode::kCancelled;

    case EDEADLK:
    case ESTALE:
      return absl::StatusCode::kAborted;

    case EBADMSG:
    case EILSEQ:
    case EPROTO:
      return absl::StatusCode::kDataLoss;

    default:
      return absl::StatusCode::kUnknown;
  }
}

}  // namespace

absl::Status StatusFromErrno(int err, std::string_view what) {
  if (err == 0) return absl::OkStatus();
  const int positive = err == INT_MIN ? INT_MAX : std::abs(err);
  char storage[128];
  // The GNU form: returns the text, which need not be in `storage`.
  const char* text = strerror_r(positive, storage, sizeof(storage));
  return absl::Status(CodeFromErrno(positive), StrCat(what, ": ", text, " (errno ", positive, ")"));
}

absl::Status Annotate(absl::Status status, std::string_view where) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), StrCat(where, ": ", status.message()));
  status.ForEachPayload([&annotated](absl::string_view type_url, const absl::Cord& payload) {
    annotated.SetPayload(type_url, payload);
  });
  return annotated;
}

absl::Status LostInFork(std::string_view what) {
  return absl::UnavailableError(
      StrCat(what,
             " was just being started by another thread when this process was forked: fork before "
             "or after that, or start a program by exec"));
}

}  // namespace weft
