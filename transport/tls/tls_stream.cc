#include "transport/tls/tls_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/process_wide.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/sockets/send.h"
#include "transport/tls/certificate_identity.h"
#include "transport/tls/kernel_tls.h"
#include "transport/tls/tls_errors.h"
#include "transport/tls/tls_kernel_stream.h"
#include "transport/tls/tls_record_stream.h"

namespace weft {
namespace {

// Content types of RFC 8446, 5.1, that a peer's first bytes may have: an alert, a handshake.
constexpr std::byte kAlertRecord{21};
constexpr std::byte kHandshakeRecord{22};
// A longer one is against the rules (RFC 8446, 5.2), which OpenSSL tells from its header.
constexpr size_t kMaxSealedBytes = TlsStream::kRecordBytes + 256;

// Of the list of certificates and of each of them, and of the extensions that stand beside it.
constexpr size_t kListLengthBytes = 3;
constexpr size_t kExtensionsLengthBytes = 2;

// Big-endian.
size_t NumberAt(ByteSpan bytes, size_t at, size_t count) {
  size_t number = 0;
  for (size_t i = 0; i < count; ++i) {
    number = number << 8 | std::to_integer<size_t>(bytes[at + i]);
  }
  return number;
}

// Of the record whose header `bytes` begins with, the header as well.
size_t RecordBytes(ByteSpan bytes) { return TlsRecords::kHeaderBytes + NumberAt(bytes, 3, 2); }

// Of the records at the beginning of `bytes`: those that are whole, and one that is too long.
size_t WholeRecords(ByteSpan bytes) {
  size_t whole = 0;
  while (bytes.size() - whole >= TlsRecords::kHeaderBytes) {
    const size_t record = RecordBytes(bytes.subspan(whole));
    if (record > kMaxSealedBytes + TlsRecords::kHeaderBytes) return bytes.size();
    if (bytes.size() - whole < record) break;
    whole += record;
  }
  return whole;
}

// Where the list of certificates begins in a message that shows some (RFC 8446, 4.4.2): behind the
// message's head and the context. 0: it is another message, or too short.
size_t CertificatesAt(ByteSpan message) {
  constexpr std::byte kCertificateMessage{11};
  constexpr size_t kHeadBytes = 4;
  if (message.size() <= kHeadBytes || message[0] != kCertificateMessage) return 0;
  const size_t list = kHeadBytes + 1 + std::to_integer<size_t>(message[kHeadBytes]);
  return list + kListLengthBytes <= message.size() ? list : 0;
}

int CountCertificates(ByteSpan list) {
  int count = 0;
  for (size_t at = kListLengthBytes; at + kListLengthBytes <= list.size(); ++count) {
    at += kListLengthBytes + NumberAt(list, at, kListLengthBytes);  // the certificate
    if (at + kExtensionsLengthBytes > list.size()) return count + 1;
    at += kExtensionsLengthBytes + NumberAt(list, at, kExtensionsLengthBytes);
  }
  return count;
}

}  // namespace

// What OpenSSL calls of a stream.
struct TlsCallbacks {
  static int Read(BIO* bio, char* to, int bytes) {
    BIO_clear_retry_flags(bio);
    auto* const stream = static_cast<TlsStream*>(BIO_get_data(bio));
    const int count =
        stream->TakeInput(reinterpret_cast<std::byte*>(to), static_cast<size_t>(bytes));
    if (count < 0 && stream->socket_error_ == 0) BIO_set_retry_read(bio);
    return count;
  }

  static int Write(BIO* bio, const char* from, int bytes) {
    BIO_clear_retry_flags(bio);
    static_cast<TlsStream*>(BIO_get_data(bio))
        ->output_.Add({reinterpret_cast<const std::byte*>(from), static_cast<size_t>(bytes)});
    return bytes;
  }

  static long Control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  static BIO_METHOD* Method() {
    using Owned = std::unique_ptr<BIO_METHOD, decltype(&BIO_meth_free)>;
    static constinit ProcessWide<Owned> method;
    return method
        .Get([] {
          Owned made(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "weft"),
                     BIO_meth_free);
          BIO_meth_set_read(made.get(), Read);
          BIO_meth_set_write(made.get(), Write);
          BIO_meth_set_ctrl(made.get(), Control);
          return made;
        })
        .get();
  }

  static void OnMessage(int written, int, int type, const void* message, size_t bytes, SSL* ssl,
                        void*) {
    if (written != 0) return;
    auto* const stream = static_cast<TlsStream*>(SSL_get_app_data(ssl));
    if (type == SSL3_RT_HANDSHAKE) {
      stream->CountOwnMessage();
      stream->LookAtCertificates({static_cast<std::byte*>(const_cast<void*>(message)), bytes});
    }
    if (type == SSL3_RT_HEADER) stream->CountRecord();
  }

  static void OnKeyLog(const SSL* ssl, const char* line) {
    auto& secrets = static_cast<TlsStream*>(SSL_get_app_data(ssl))->secrets_;
    if (secrets == nullptr) secrets = std::make_unique<TlsTrafficSecrets>();
    secrets->Note(line);
  }

  // A ticket has come; 1: the session is ours now.
  static int OnSession(SSL* ssl, SSL_SESSION* session) {
    auto* const stream = static_cast<TlsStream*>(SSL_get_app_data(ssl));
    stream->credentials_->KeepSession(stream->ticket_name_, SSL_get_SSL_CTX(ssl), session);
    return 1;
  }
};

TlsStream::~TlsStream() {
  if (ssl_ == nullptr) return;
  // Otherwise OpenSSL takes a stream without a close_notify for broken, and its ticket for void.
  if (state_ != State::kFailed) SSL_set_shutdown(ssl_, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
  SSL_free(ssl_);
}

absl::Status TlsStream::Start(TlsCredentials* credentials, TlsScratch* scratch, uint64_t now_ns,
                              std::string_view host, std::string_view address, const TlsKey& key) {
  WEFT_CHECK(is_plain());  // Ours: a stream starts once
  const SecurityOptions& options = credentials->options();
  const bool is_client = credentials->role() == TlsRole::kClient;
  host_ = options.server_name.empty() ? std::string(host) : options.server_name;
  ticket_name_ = address.empty() ? host_ : std::string(address);
  const bool checks_host = is_client && !credentials->uses_psk() &&
                           (options.expected_uri.empty() || !options.server_name.empty());
  if (checks_host && host_.empty()) {
    return absl::InvalidArgumentError(
        "TLS: the server's address has no host that its certificate could name; set "
        "SecurityOptions::server_name or expected_uri");
  }
  credentials_ = credentials;
  scratch_ = scratch;
  output_.set_scratch(scratch);
  key_ = key.name.empty() ? TlsKey{options.psk_name, AsBytes(options.psk_secret)} : key;
  ERR_clear_error();
  SSL_CTX* const context = credentials->Context(now_ns);
  SSL_CTX_sess_set_new_cb(context, TlsCallbacks::OnSession);
  if (credentials->uses_psk()) SSL_CTX_set_keylog_callback(context, TlsCallbacks::OnKeyLog);
  ssl_ = SSL_new(context);
  BIO* const bio = ssl_ == nullptr ? nullptr : BIO_new(TlsCallbacks::Method());
  if (bio == nullptr) return absl::ResourceExhaustedError(StrCat("TLS: ", TakeTlsErrors()));
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, this);
  SSL_set_msg_callback(ssl_, TlsCallbacks::OnMessage);
  if (is_client) {
    SSL_set_connect_state(ssl_);
  } else {
    SSL_set_accept_state(ssl_);
  }
  if (checks_host) {
    X509_VERIFY_PARAM* const wanted = SSL_get0_param(ssl_);
    X509_VERIFY_PARAM_set_hostflags(
        wanted, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (X509_VERIFY_PARAM_set1_ip_asc(wanted, host_.c_str()) != 1) {
      ERR_clear_error();
      if (X509_VERIFY_PARAM_set1_host(wanted, host_.data(), host_.size()) != 1 ||
          SSL_set_tlsext_host_name(ssl_, host_.c_str()) != 1) {
        return absl::InvalidArgumentError(
            StrCat("TLS: no certificate can have the name \"", host_, "\": ", TakeTlsErrors()));
      }
    }
  }
  speaks_first_ = is_client;
  if (is_client) {
    SSL_SESSION* const session = credentials->Session(ticket_name_);
    if (session != nullptr) SSL_set_session(ssl_, session);
  }
  state_ = State::kHandshake;
  return absl::OkStatus();
}

absl::Status TlsStream::AlsoOffer(std::string_view protocol) {
  // Ours: a name that this side has made
  WEFT_CHECK(speaks_first_ && !protocol.empty() && protocol.size() <= 255);
  const std::string names =
      StrCat("\6weft/1", std::string(1, static_cast<char>(protocol.size())), protocol);
  ERR_clear_error();
  if (SSL_set_alpn_protos(ssl_, reinterpret_cast<const unsigned char*>(names.data()),
                          static_cast<unsigned int>(names.size())) == 0) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(StrCat("TLS: ", TakeTlsErrors()));
}

// --- the calls -----------------------------------------------------------------------------------

ssize_t TlsStream::Read(const iovec* iovecs, int count, size_t seen_bytes) {
  if (!is_plain()) return ReadTls(iovecs, count, seen_bytes);
  if (count == 1) return ::recv(fd_, iovecs->iov_base, iovecs->iov_len, 0);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(iovecs);
  message.msg_iovlen = static_cast<size_t>(count);
  return ::recvmsg(fd_, &message, 0);
}

ssize_t TlsStream::Write(const iovec* iovecs, int count) {
  return is_plain() ? SendPieces(fd_, iovecs, count) : WriteTls(iovecs, count);
}

bool TlsStream::Flush() {
  if (is_plain()) return true;
  if (state_ == State::kHandshake) ContinueHandshake();
  if (state_ == State::kUp && layer_ != nullptr) {
    layer_->Flush();
    OfLayer(0);
  } else {
    SendOutput();
  }
  return unsent() == 0;
}

void TlsStream::End() {
  if (state_ != State::kUp || std::exchange(ended_, true)) return;
  if (layer_ != nullptr) {
    layer_->End();
    OfLayer(0);
    return;
  }
  ERR_clear_error();
  SSL_shutdown(ssl_);
  SendOutput();
}

bool TlsStream::has_pending() const {
  if (state_ != State::kUp) return state_ == State::kFailed;
  if (layer_ != nullptr) return layer_->has_pending();
  return at_end_ || paused_ || !input_.empty() || SSL_pending(ssl_) > 0;
}

ssize_t TlsStream::ReadTls(const iovec* iovecs, int count, size_t seen_bytes) {
  if (!ContinueHandshake()) {
    errno = state_ == State::kFailed ? EPROTO : EAGAIN;
    return -1;
  }
  if (layer_ != nullptr) return OfLayer(layer_->Read(iovecs, count, seen_bytes));
  size_t wanted = 0;
  for (int i = 0; i < count; ++i) wanted += iovecs[i].iov_len;
  recv_limit_ = std::min(wanted + wanted / kRecordBytes * TlsRecords::kAddedBytes + kReadAheadBytes,
                         scratch_->input().size());
  size_t taken = 0;
  int error = 0;
  read_records_ = 0;
  ERR_clear_error();
  // A short read has emptied the socket: to ask OpenSSL once more would only cost time.
  const auto has_more = [&] {
    if (read_records_ >= kMaxReadRecords && SSL_pending(ssl_) == 0) return false;
    return taken == 0 || recv_limit_ > 0 || !input_.empty() || SSL_pending(ssl_) > 0;
  };
  for (int i = 0; i < count && error == 0 && !at_end_ && has_more(); ++i) {
    for (size_t filled = 0; filled < iovecs[i].iov_len && has_more();) {
      size_t bytes = 0;
      const int result = SSL_read_ex(ssl_, static_cast<std::byte*>(iovecs[i].iov_base) + filled,
                                     iovecs[i].iov_len - filled, &bytes);
      if (result != 1) {
        at_end_ = SSL_get_error(ssl_, result) == SSL_ERROR_ZERO_RETURN;
        if (!at_end_) error = Judge(result, "reading");
        break;
      }
      filled += bytes;
      taken += bytes;
      own_messages_.AddData(bytes);
    }
  }
  paused_ = read_records_ >= kMaxReadRecords && recv_limit_ > 0;
  KeepInput();
  SendOutput();
  if (taken > 0 || at_end_ || wanted == 0) return static_cast<ssize_t>(taken);
  errno = error;
  return -1;
}

ssize_t TlsStream::WriteTls(const iovec* iovecs, int count) {
  if (!ContinueHandshake() || !Flush()) {
    errno = state_ == State::kFailed ? EPROTO : EAGAIN;
    return -1;
  }
  if (layer_ != nullptr) return OfLayer(layer_->Write(iovecs, count));
  const MutableByteSpan record = scratch_->record();
  size_t taken = 0;   // sealed
  size_t staged = 0;  // in `record`
  ERR_clear_error();
  for (int i = 0; i < count; ++i) {
    ByteSpan rest(static_cast<const std::byte*>(iovecs[i].iov_base), iovecs[i].iov_len);
    while (!rest.empty() && taken + staged < kMaxWriteBytes) {
      const size_t bytes = std::min(rest.size(), kRecordBytes - staged);
      ByteSpan whole = rest.first(bytes);
      if (bytes < kRecordBytes) {
        std::memcpy(record.data() + staged, rest.data(), bytes);
        staged += bytes;
        whole = record.first(staged);
      }
      rest = rest.subspan(bytes);
      if (whole.size() < kRecordBytes) continue;
      if (!Seal(whole)) return -1;
      taken += kRecordBytes;
      staged = 0;
    }
  }
  if (staged > 0 && !Seal(record.first(staged))) return -1;
  taken += staged;
  SendOutput();
  if (state_ == State::kFailed) {
    errno = EPROTO;
    return -1;
  }
  return static_cast<ssize_t>(taken);
}

bool TlsStream::Seal(ByteSpan plain) {
  size_t bytes = 0;
  const int result = SSL_write_ex(ssl_, plain.data(), plain.size(), &bytes);
  if (result == 1) return true;
  // Our BIO takes everything, so there is nothing to wait for.
  if (Judge(result, "writing") == EAGAIN) Fail(absl::InternalError("TLS: a write has to wait"));
  errno = EPROTO;
  return false;
}

// --- records of our own, and of the kernel's -----------------------------------------------------

void TlsStream::UseKernel() {
  const absl::Status offer = AskKernelForTls();
  wants_kernel_ = offer.ok();
  why_not_kernel_ = ToStd(offer.message());
}

// Both sides number their records from 0 here: OpenSSL has neither made nor read one under these
// secrets. A server makes its tickets right behind the handshake.
const char* TlsStream::MakeRecords(std::unique_ptr<TlsRecords>* records) {
  const std::unique_ptr<TlsTrafficSecrets> secrets = std::move(secrets_);
  if (secrets == nullptr) return "OpenSSL has told nobody their keys";
  if (SSL_has_pending(ssl_) == 1) return "OpenSSL has begun to read them";
  if (credentials_->role() == TlsRole::kServer && SSL_get_num_tickets(ssl_) > 0) {
    return "OpenSSL has made tickets with the key";
  }
  const uint16_t suite = SSL_CIPHER_get_protocol_id(SSL_get_current_cipher(ssl_));
  *records = TlsRecords::Create(suite, credentials_->role(), *secrets);
  return *records == nullptr ? "the suite is not AES-GCM" : nullptr;
}

void TlsStream::TakeOver() {
  std::unique_ptr<TlsRecords> records;
  if (const char* const why_openssl = MakeRecords(&records); why_openssl != nullptr) {
    if (wants_kernel_) why_not_kernel_ = why_openssl;
    return;
  }
  if (!wants_kernel_ || !GiveToKernel(&records)) {
    layer_ = std::make_unique<TlsRecordStream>(fd_, scratch_, &output_, std::move(records), input_);
    records_by_ = RecordsBy::kWeft;
  }
  input_ = {};
  std::vector<std::byte>().swap(kept_);
}

bool TlsStream::GiveToKernel(std::unique_ptr<TlsRecords>* records) {
  SendOutput();  // the end of the handshake is no work of the kernel's
  if (!input_.empty()) {
    why_not_kernel_ = "records of the peer's have been read already";
  } else if (output_.unsent() > 0) {
    why_not_kernel_ = "the socket was full at the end of the handshake";
  } else {
    auto begun = TlsKernelStream::Begin(fd_, scratch_, records);
    if (begun.ok()) {
      layer_ = *std::move(begun);
      records_by_ = RecordsBy::kKernel;
      return true;
    }
    if (absl::IsInternal(begun.status())) BecomeFailed(begun.status());
    why_not_kernel_ = ToStd(begun.status().message());
  }
  return state_ == State::kFailed;
}

ssize_t TlsStream::OfLayer(ssize_t result) {
  if (!layer_->failed()) return result;
  BecomeFailed(layer_->error());
  errno = EPROTO;
  return result;
}

// --- the handshake -------------------------------------------------------------------------------

bool TlsStream::ContinueHandshake() {
  while (state_ == State::kHandshake && ReceiveFlight()) RunFlight();
  return state_ == State::kUp;
}

bool TlsStream::ReceiveFlight() {
  if (speaks_first_) return true;
  while (whole_bytes_ == 0 && ReceiveHandshake()) whole_bytes_ = WholeRecords(input_);
  return whole_bytes_ > 0;
}

void TlsStream::RunFlight() {
  speaks_first_ = false;
  recv_limit_ = 0;  // ReceiveFlight() has received
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  KeepInput();
  if (result == 1) {
    const absl::Status checked = CheckPeer();
    if (checked.ok()) {
      state_ = State::kUp;
      TakeOver();
    } else {
      Fail(checked);
    }
  } else {
    Judge(result, "the handshake");
  }
  SendOutput();
}

// OpenSSL has checked the chain and the names. This is what it takes for optional.
absl::Status TlsStream::CheckPeer() const {
  const unsigned char* protocol = nullptr;
  unsigned int bytes = 0;
  SSL_get0_alpn_selected(ssl_, &protocol, &bytes);
  if (std::string_view(reinterpret_cast<const char*>(protocol), bytes) != "weft/1") {
    return absl::FailedPreconditionError(
        "TLS: the peer did not agree to the protocol weft/1 (ALPN); something else is there");
  }
  if (credentials_->uses_psk()) {
    if (SSL_session_reused(ssl_) == 1) return absl::OkStatus();
    return absl::UnauthenticatedError(
        StrCat("TLS: the peer does not know the key \"", key_.name, "\""));
  }
  if (SSL_get_verify_result(ssl_) != X509_V_OK) return HandshakeError();
  const bool needed = credentials_->role() == TlsRole::kClient ||
                      credentials_->options().require_client_certificate;
  X509* const own = SSL_get0_peer_certificate(ssl_);
  if (own != nullptr) return CheckSize(own);
  if (needed) return absl::UnauthenticatedError("TLS: the peer has shown no certificate");
  return absl::OkStatus();
}

// What this side keeps of a peer for as long as it is connected, and looks at with its calls.
absl::Status TlsStream::CheckSize(X509* own) const {
  const PeerIdentity shown = IdentityOf(own);
  const size_t names = shown.dns_names.size() + shown.uris.size() + shown.ip_addresses.size();
  if (names > kMaxNames) {
    return absl::UnauthenticatedError(StrCat("TLS: the peer's certificate has ", names,
                                             " names; at most ", kMaxNames, " are accepted"));
  }
  STACK_OF(X509)* const chain = SSL_get_peer_cert_chain(ssl_);
  int most = X509_get_ext_count(own);
  for (int i = 0; i < sk_X509_num(chain); ++i) {
    most = std::max(most, X509_get_ext_count(sk_X509_value(chain, i)));
  }
  if (most <= kMaxExtensions) return absl::OkStatus();
  return absl::UnauthenticatedError(StrCat("TLS: a certificate of the peer's has ", most,
                                           " extensions; at most ", kMaxExtensions,
                                           " are accepted"));
}

// OpenSSL reads the keys of all before it looks at any signature, has no limit for their number,
// and cannot be told from here to stop: so it gets a list whose length cannot be, which it refuses.
// The memory is its own, and it reads it behind this call.
void TlsStream::LookAtCertificates(MutableByteSpan message) {
  const size_t at = CertificatesAt(message);
  if (at == 0 || CountCertificates(message.subspan(at)) <= kMaxCertificates) return;
  too_many_certificates_ = true;
  std::fill_n(message.data() + at, kListLengthBytes, std::byte{0xff});
}

absl::Status TlsStream::HandshakeError() const {
  const long verified = SSL_get_verify_result(ssl_);
  const unsigned long error = ERR_peek_error();
  const std::string text = TakeTlsErrors();
  const SecurityOptions& options = credentials_->options();
  if (too_many_certificates_) {
    return absl::UnauthenticatedError(
        StrCat("TLS: the peer shows more than ", kMaxCertificates, " certificates"));
  }
  if (verified != X509_V_OK && credentials_->uses_psk()) {
    return absl::UnauthenticatedError(StrCat("TLS: the server does not know the key \"", key_.name,
                                             "\": it shows a certificate"));
  }
  if (verified == X509_V_ERR_APPLICATION_VERIFICATION) {
    return absl::UnauthenticatedError(StrCat(
        "TLS: the peer's certificate does not have the expected URI ", options.expected_uri));
  }
  if (verified == X509_V_ERR_HOSTNAME_MISMATCH || verified == X509_V_ERR_IP_ADDRESS_MISMATCH) {
    return absl::UnauthenticatedError(
        StrCat("TLS: the server's certificate does not name \"", host_, "\""));
  }
  if (verified != X509_V_OK) {
    return absl::UnauthenticatedError(StrCat("TLS: the peer's certificate is not accepted: ",
                                             X509_verify_cert_error_string(verified)));
  }
  if (credentials_->uses_psk() && credentials_->role() == TlsRole::kServer &&
      !IsPeersAlert(error) && error != 0 &&
      TlsCodeOf(error, false) == absl::StatusCode::kUnauthenticated) {
    return absl::UnauthenticatedError(
        StrCat("TLS: the client does not know the key \"", key_.name, "\": ", text));
  }
  return absl::Status(TlsCodeOf(error, false), IsPeersAlert(error)
                                                   ? TlsRefusal(error, text)
                                                   : StrCat("TLS: the handshake failed: ", text));
}

int TlsStream::Judge(int result, const char* action) {
  const int error = SSL_get_error(ssl_, result);
  if (state_ == State::kFailed || FailIfEnded(action)) return EPROTO;
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
    return EAGAIN;
  } else if (error == SSL_ERROR_ZERO_RETURN) {
    Fail(absl::UnavailableError(StrCat("TLS: the peer ended the stream during ", action)));
  } else if (state_ == State::kHandshake) {
    Fail(HandshakeError());
  } else {
    const unsigned long first = ERR_peek_error();
    const std::string text = TakeTlsErrors();
    Fail(absl::Status(TlsCodeOf(first, true), IsPeersAlert(first)
                                                  ? TlsRefusal(first, text)
                                                  : StrCat("TLS: a record is wrong: ", text)));
  }
  return EPROTO;
}

bool TlsStream::FailIfEnded(const char* action) {
  if (socket_error_ != 0) {
    const absl::Status status = StatusFromErrno(socket_error_, StrCat("TLS: ", action));
    Fail(absl::UnavailableError(status.message()));
  } else if (cut_) {
    Fail(absl::UnavailableError(state_ == State::kHandshake
                                    ? "TLS: the peer closed the stream during the handshake"
                                    : "TLS: the stream was cut: it ended without TLS's own end"));
  }
  return state_ == State::kFailed;
}

void TlsStream::Fail(absl::Status why) {
  if (state_ == State::kFailed) return;
  SendOutput();  // an alert tells the peer, if there is room for it
  BecomeFailed(std::move(why));
}

void TlsStream::BecomeFailed(absl::Status why) {
  if (state_ == State::kFailed) return;
  state_ = State::kFailed;
  error_ = std::move(why);
  output_.Clear();
  input_ = {};
  secrets_.reset();
}

// --- bytes ---------------------------------------------------------------------------------------

ByteSpan TlsStream::Receive() {
  const MutableByteSpan room = scratch_->input().first(recv_limit_);
  ssize_t count = 0;
  do {
    count = ::recv(fd_, room.data(), room.size(), 0);
  } while (count < 0 && errno == EINTR);
  if (count <= 0) {
    cut_ = count == 0;
    if (count < 0 && errno != EAGAIN) socket_error_ = errno;
    recv_limit_ = 0;
    return {};
  }
  // A short read has emptied the socket: the poller tells of what comes after it.
  if (static_cast<size_t>(count) < recv_limit_) recv_limit_ = 0;
  return room.first(static_cast<size_t>(count));
}

// For the kernel the rest of one record, whose header comes first: it is to find the next one. Who
// cuts his words into more records than anybody does is read as without the kernel.
size_t TlsStream::HandshakeBytesWanted() const {
  if (!wants_kernel_ || handshake_reads_ > kMaxHandshakeReads) return kReadAheadBytes;
  const size_t held = input_.size();
  if (held < TlsRecords::kHeaderBytes) return TlsRecords::kHeaderBytes - held;
  return std::min(RecordBytes(input_) - held, kReadAheadBytes);
}

bool TlsStream::ReceiveHandshake() {
  ++handshake_reads_;
  recv_limit_ = HandshakeBytesWanted();
  const ByteSpan received = Receive();
  if (received.empty()) {
    FailIfEnded("the handshake");
    return false;
  }
  const bool first = handshake_bytes_ == 0;
  handshake_bytes_ += received.size();
  if (first && received[0] != kHandshakeRecord && received[0] != kAlertRecord) {
    Fail(absl::FailedPreconditionError(
        "the peer does not speak TLS: its options have no `security` (SecurityOptions), or it "
        "is another service"));
    return false;
  }
  if (handshake_bytes_ > kMaxHandshakeBytes) {
    Fail(absl::ResourceExhaustedError(StrCat("TLS: the peer sends more than ", kMaxHandshakeBytes,
                                             " bytes before the handshake is complete")));
    return false;
  }
  // What is held is at the end of kept_.
  kept_.erase(kept_.begin(), kept_.end() - static_cast<ptrdiff_t>(input_.size()));
  kept_.insert(kept_.end(), received.begin(), received.end());
  input_ = kept_;
  return true;
}

int TlsStream::TakeInput(std::byte* to, size_t bytes) {
  const bool shakes_hands = state_ == State::kHandshake;
  // One behind those that a Read() opens: where they bring no data, OpenSSL goes on by itself.
  if (state_ == State::kUp && read_records_ > kMaxReadRecords) return -1;
  if (shakes_hands && whole_bytes_ == 0) return -1;
  if (input_.empty()) {
    if (recv_limit_ == 0 || state_ == State::kFailed) return -1;
    input_ = Receive();
    if (input_.empty()) return cut_ ? 0 : -1;
  }
  const size_t count = std::min(bytes, shakes_hands ? whole_bytes_ : input_.size());
  std::memcpy(to, input_.data(), count);
  input_ = input_.subspan(count);
  if (shakes_hands) whole_bytes_ -= count;
  return static_cast<int>(count);
}

void TlsStream::KeepInput() {
  if (input_.empty()) {
    // A stream whose socket is empty too may be still for long; one that goes on needs the room
    // again.
    if (recv_limit_ == 0 && kept_.capacity() > kMaxIdleBytes) std::vector<std::byte>().swap(kept_);
    return;
  }
  const bool is_kept = !kept_.empty() && input_.data() >= kept_.data() &&
                       input_.data() < kept_.data() + kept_.size();
  if (is_kept) return;
  kept_.assign(input_.begin(), input_.end());
  input_ = kept_;
}

void TlsStream::CountOwnMessage() {
  if (state_ == State::kUp && !own_messages_.Count()) Fail(TlsOwnMessages::TooMany());
}

void TlsStream::SendOutput() {
  if (state_ == State::kFailed) return output_.Clear();
  if (scratch_ == nullptr || output_.Send()) return;
  BecomeFailed(absl::ResourceExhaustedError("TLS: the peer asks for more than it reads"));
}

// --- the peer ------------------------------------------------------------------------------------

bool TlsStream::resumed() const {
  return state_ == State::kUp && !credentials_->uses_psk() && SSL_session_reused(ssl_) == 1;
}

PeerIdentity TlsStream::identity() const {
  WEFT_CHECK(state_ == State::kUp);  // Ours: callers look at state() first
  PeerIdentity identity;
  if (credentials_->uses_psk()) {
    identity.authentication = Authentication::kPreSharedKey;
    identity.psk_name = credentials_->options().psk_name;
    return identity;
  }
  const X509* const certificate = SSL_get0_peer_certificate(ssl_);
  return certificate == nullptr ? identity : IdentityOf(certificate);
}

absl::Status TlsStream::Export(std::string_view label, ByteSpan context,
                               MutableByteSpan secret) const {
  WEFT_CHECK(state_ == State::kUp);  // Ours: callers look at state() first
  ERR_clear_error();
  if (SSL_export_keying_material(
          ssl_, reinterpret_cast<unsigned char*>(secret.data()), secret.size(), label.data(),
          label.size(), reinterpret_cast<const unsigned char*>(context.data()), context.size(),
          /*use_context=*/1) != 1) {
    return absl::InternalError(StrCat("TLS: export of a secret: ", TakeTlsErrors()));
  }
  return absl::OkStatus();
}

}  // namespace weft
