#include "transport/tls/kernel_tls.h"

#include <endian.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "core/process_wide.h"
#include "core/secret.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/descriptor.h"
#include "transport/sockets/address.h"
#include "transport/sockets/socket.h"

namespace weft {
namespace {

// Of the nonce, as the kernel takes it for all versions of TLS: in two pieces.
constexpr size_t kSaltBytes = TLS_CIPHER_AES_GCM_256_SALT_SIZE;
constexpr size_t kIvBytes = TLS_CIPHER_AES_GCM_256_IV_SIZE;
static_assert(kSaltBytes + kIvBytes == RecordCipher::kIvBytes);

int OptionOf(KernelTlsSide side) { return side == KernelTlsSide::kOut ? TLS_TX : TLS_RX; }

template <class Info>
int Give(int fd, KernelTlsSide side, uint16_t cipher, const TlsRecordKey& key) {
  SecretBytes<sizeof(Info)> memory;
  Info info = {};
  info.info.version = TLS_1_3_VERSION;
  info.info.cipher_type = cipher;
  std::memcpy(memory.data(), &info, sizeof(info));
  std::memcpy(memory.data() + offsetof(Info, key), key.key.data(), sizeof(info.key));
  std::memcpy(memory.data() + offsetof(Info, salt), key.iv.data(), kSaltBytes);
  std::memcpy(memory.data() + offsetof(Info, iv), key.iv.data() + kSaltBytes, kIvBytes);
  const uint64_t number = htobe64(key.number);
  std::memcpy(memory.data() + offsetof(Info, rec_seq), &number, sizeof(number));
  const int given = ::setsockopt(fd, SOL_TLS, OptionOf(side), memory.data(), memory.size());
  return given == 0 ? 0 : errno;
}

// --- what is offered -----------------------------------------------------------------------------

// False: not within a second, which a filter of packets may cause.
bool Await(int fd, short events) {
  pollfd asked = {fd, events, 0};
  return ::poll(&asked, 1, /*timeout=*/1000) == 1;
}

// Both ends of a connection of this process to itself.
absl::Status Connect(Descriptor* client, Descriptor* server) {
  WEFT_ASSIGN_OR_RETURN(const KernelAddress any, ParseNumericAddress("127.0.0.1:0"));
  WEFT_ASSIGN_OR_RETURN(const Descriptor listener, ListenInternet(any));
  WEFT_ASSIGN_OR_RETURN(const KernelAddress address, LocalAddress(listener.get()));
  WEFT_ASSIGN_OR_RETURN(*client, StartDial(address));
  if (!Await(listener.get(), POLLIN) || !Await(client->get(), POLLOUT)) {
    return StatusFromErrno(ETIMEDOUT, StrCat("connect to ", address.text()));
  }
  WEFT_ASSIGN_OR_RETURN(*server, AcceptClient(listener.get()));
  return absl::OkStatus();
}

// What the kernel answers is its answer for as long as this process lives, but for want of memory.
absl::Status NotOffered(int error, std::string_view what) {
  const bool may_pass = error == ENOBUFS || error == ENOMEM;
  return {may_pass ? absl::StatusCode::kUnavailable : absl::StatusCode::kUnimplemented,
          StatusFromErrno(error, what).message()};
}

absl::Status Try() {
  Descriptor ends[2];
  if (const absl::Status connected = Connect(&ends[0], &ends[1]); !connected.ok()) {
    return absl::UnavailableError(
        StrCat("no connection over 127.0.0.1 to try the kernel's TLS with: ", connected.message()));
  }
  for (const Descriptor& end : ends) {
    const int error = AttachKernelTls(end.get());
    if (error == ENOENT) {
      return absl::UnimplementedError(
          "this kernel has no TLS (CONFIG_TLS), or its module was not loaded when this process "
          "first asked for it (modprobe tls)");
    }
    if (error != 0) {
      return NotOffered(error, "the kernel's TLS cannot be used here");
    }
  }
  TlsRecordKey key;
  key.bytes = TlsRecordKey::kMostBytes;
  for (const KernelTlsSide side : {KernelTlsSide::kOut, KernelTlsSide::kIn}) {
    const int fd = ends[side == KernelTlsSide::kOut ? 0 : 1].get();
    if (const int error = GiveKernelTlsKey(fd, side, key); error != 0) {
      return NotOffered(error, "this kernel's TLS has no TLS 1.3 with AES-GCM");
    }
    const int error = GiveKernelTlsKey(fd, side, key);
    if (error == EBUSY) {
      return absl::UnimplementedError(
          "this kernel's TLS takes no new key on an open socket (Linux 6.14 does)");
    }
    if (error != 0) {
      return NotOffered(error, "this kernel's TLS takes no new key");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AskKernelForTls() {
  static constinit ProcessWide<absl::Status> answer;
  static constinit std::atomic<bool> is_kept{false};
  if (is_kept.load(std::memory_order_acquire)) return answer.Get();
  const absl::Status tried = Try();
  if (absl::IsUnavailable(tried)) return tried;
  const absl::Status& kept = answer.Get([&] { return tried; });
  is_kept.store(true, std::memory_order_release);
  return kept;
}

// --- keys ----------------------------------------------------------------------------------------

int AttachKernelTls(int fd) {
  constexpr char kName[] = "tls";
  return ::setsockopt(fd, IPPROTO_TCP, TCP_ULP, kName, sizeof(kName)) == 0 ? 0 : errno;
}

int GiveKernelTlsKey(int fd, KernelTlsSide side, const TlsRecordKey& key) {
  return key.bytes == TLS_CIPHER_AES_GCM_128_KEY_SIZE
             ? Give<tls12_crypto_info_aes_gcm_128>(fd, side, TLS_CIPHER_AES_GCM_128, key)
             : Give<tls12_crypto_info_aes_gcm_256>(fd, side, TLS_CIPHER_AES_GCM_256, key);
}

std::optional<uint64_t> KernelTlsRecords(int fd, KernelTlsSide side) {
  tls_crypto_info used = {};
  socklen_t bytes = sizeof(used);
  if (::getsockopt(fd, SOL_TLS, OptionOf(side), &used, &bytes) != 0) return std::nullopt;
  // The key comes with the number.
  SecretBytes<sizeof(tls12_crypto_info_aes_gcm_256)> memory;
  const bool is_128 = used.cipher_type == TLS_CIPHER_AES_GCM_128;
  bytes = is_128 ? sizeof(tls12_crypto_info_aes_gcm_128) : sizeof(tls12_crypto_info_aes_gcm_256);
  if (::getsockopt(fd, SOL_TLS, OptionOf(side), memory.data(), &bytes) != 0) return std::nullopt;
  uint64_t number = 0;
  std::memcpy(&number,
              memory.data() + (is_128 ? offsetof(tls12_crypto_info_aes_gcm_128, rec_seq)
                                      : offsetof(tls12_crypto_info_aes_gcm_256, rec_seq)),
              sizeof(number));
  return be64toh(number);
}

// --- records -------------------------------------------------------------------------------------

bool SendKernelTlsMessage(int fd, TlsRecords::Kind kind, ByteSpan content) {
  iovec piece{const_cast<std::byte*>(content.data()), content.size()};
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(kind))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const type = CMSG_FIRSTHDR(&message);
  type->cmsg_level = SOL_TLS;
  type->cmsg_type = TLS_SET_RECORD_TYPE;
  type->cmsg_len = CMSG_LEN(sizeof(kind));
  std::memcpy(CMSG_DATA(type), &kind, sizeof(kind));
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(fd, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(content.size())) return true;
  if (sent >= 0) errno = EIO;  // a record is taken whole
  return false;
}

KernelTlsReceived ReceiveKernelTls(int fd, const iovec* iovecs, int count) {
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(uint8_t))] = {};
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(iovecs);
  message.msg_iovlen = static_cast<size_t>(count);
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t bytes = 0;
  do {
    bytes = ::recvmsg(fd, &message, 0);
  } while (bytes < 0 && errno == EINTR);
  KernelTlsReceived received;
  if (bytes < 0) {
    received.error = errno;
    return received;
  }
  received.bytes = static_cast<size_t>(bytes);
  received.ends_record = (message.msg_flags & MSG_EOR) != 0;
  const cmsghdr* const type = CMSG_FIRSTHDR(&message);
  if (type != nullptr && type->cmsg_level == SOL_TLS && type->cmsg_type == TLS_GET_RECORD_TYPE) {
    std::memcpy(&received.type, CMSG_DATA(type), sizeof(received.type));
  }
  return received;
}

}  // namespace weft
