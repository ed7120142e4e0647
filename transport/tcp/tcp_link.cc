#include "transport/tcp/tcp_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <utility>

#include "core/check.h"
#include "core/fork_guard.h"
#include "core/log.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/sockets/join.h"
#include "transport/sockets/socket.h"
#include "transport/tcp/tcp_parts.h"
#include "transport/transfer_check.h"

namespace weft {
namespace {

// What the kernel holds of this link's before the network has it, in bytes: what a batch waits for
// behind a large transfer. As much as is made ahead (tcp_output.h): with a quarter of it, 1 MiB
// transfers under BBR were a tenth slower.
constexpr int kUnsentBytes = TcpOutput::kMostPumpBytes;
// A peer that takes no byte for so long has ended. Long: a peer that nobody drives takes none
// either, and holds little here.
constexpr int kProgressMs = 60'000;

void SetDataOptions(int fd) {
  const auto set = [fd](int option, int value) {
    setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value));
  };
  // A Unix socket knows none of them.
  set(TCP_NOTSENT_LOWAT, kUnsentBytes);
  set(TCP_USER_TIMEOUT, kProgressMs);
}

absl::Status SocketError(int error) {
  if (error == ETIMEDOUT) {
    return absl::UnavailableError(StrCat("the peer has taken nothing for ", kProgressMs / 1000,
                                         " s, or its host is gone (TCP_USER_TIMEOUT)"));
  }
  return absl::UnavailableError(
      StrCat("the link's socket broke: ", ToStd(StatusFromErrno(error, "tcp").message())));
}

std::string NameOf(const Nonce128& token) {
  char text[33];
  std::snprintf(text, sizeof(text), "%016" PRIx64 "%016" PRIx64, token.high, token.low);
  return text;
}

absl::Status Refused() {
  return absl::PermissionDeniedError(
      "remote access refused: unknown key, or outside of its bounds");
}

// Whoever wishes for the kernel's TLS, and does not get it, is told why: once, for it is mostly the
// same with all links. PathInfo::kernel_tls says it of each.
void TellOfKernel(const std::string& why_not) {
  static constinit std::atomic<bool> told{false};
  if (told.exchange(true, std::memory_order_relaxed)) return;
  WEFT_LOG(kWarning,
           "SecurityOptions::kernel_tls: the kernel does not make the records of a link over ",
           "tcp: ", why_not);
}

// Whoever is called back may destroy the link: it tells the innermost flag, which tells the others.
class GoneFlag {
 public:
  explicit GoneFlag(bool** place) : place_(place), outer_(*place) { *place_ = &gone_; }
  ~GoneFlag() {
    if (!gone_) {
      *place_ = outer_;
    } else if (outer_ != nullptr) {
      *outer_ = true;
    }
  }
  bool gone() const { return gone_; }

 private:
  bool** const place_;
  bool* const outer_;
  bool gone_ = false;
};

}  // namespace

TcpLink::TcpLink(TcpParts* parts, LinkHandler* handler, const LinkPeer& peer)
    : parts_(parts),
      prefetch_(parts->recent.TakeList()),
      life_(handler),
      token_{peer.nonce, peer.nonce_low},
      input_(&parts->receive_memory, &parts->regions, &parts->operations, &output_),
      output_(&parts->regions, &parts->slots, &parts->answers) {
  if (peer.secret.has_value()) {
    tls_.reset(new Tls{*peer.secret, peer.kernel_tls, NameOf(token_), {}});
  }
  parts_->links.Join(this);
}

TcpLink::~TcpLink() {
  if (gone_ != nullptr) *gone_ = true;
  EndTls();
  life_.End();
  Close();
  ForgetDuties();
  EndAll(absl::CancelledError("the connection is closed"));
  parts_->recent.Forget(this);
  parts_->recent.GiveList(prefetch_);
  parts_->links.Leave(this);
}

// --- life ---------------------------------------------------------------------------------------

// Edge-triggered: each event comes once, and is remembered here.
absl::Status TcpLink::BeginWatch() {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP | EPOLLET;
  event.data.ptr = this;
  if (epoll_ctl(parts_->epoll, EPOLL_CTL_ADD, socket_.get(), &event) != 0) {
    return StatusFromErrno(errno, "watch the socket of a link");
  }
  watched_ = true;
  return absl::OkStatus();
}

void TcpLink::Watch() {
  if (watched_ || !socket_.valid()) return;
  if (const absl::Status status = BeginWatch(); !status.ok()) Fail(status);
}

void TcpLink::Unwatch() {
  if (!watched_ || !writable_ || !output_.empty() || has_unsent()) return;
  watched_ = epoll_ctl(parts_->epoll, EPOLL_CTL_DEL, socket_.get(), nullptr) != 0;
}

absl::Status TcpLink::Dial(const KernelAddress& address) {
  WEFT_ASSIGN_OR_RETURN(socket_, StartDial(address));
  OwnDescriptor(socket_.get());
  SetDataOptions(socket_.get());
  dialing_.reset(new Dialing{address});
  return BeginWatch();
}

// The socket is connected, or will never be.
void TcpLink::OnDialed() {
  const absl::Status dialed = FinishDial(socket_.get(), dialing_->address);
  if (!dialed.ok()) return Fail(dialed);
  if (!SendWhole(EncodeJoin(token_))) return;
  dialing_->connected = true;
  if (tls_ != nullptr) StartTls(TlsRole::kClient);
}

void TcpLink::StartTls(TlsRole role) {
  const absl::StatusOr<TlsCredentials*> credentials = parts_->security.Credentials(role);
  if (!credentials.ok()) return Fail(credentials.status());
  TlsStream& stream = tls_->stream.emplace(socket_.get());
  const absl::Status started =
      stream.Start(*credentials, parts_->security.scratch(), /*now_ns=*/0,
                   /*host=*/{}, /*address=*/{}, {tls_->name, tls_->secret});
  if (!started.ok()) return Fail(started);
  if (tls_->by_kernel) stream.UseKernel();
  stream.Flush();  // the client begins
  BeReady();
}

// The passive side's: the welcome is the first thing that is said inside of TLS.
int TcpLink::OnTlsHandshake() {
  ListNode<TcpReadyTag>::Unlink();  // an event will tell of what comes now
  TlsStream& stream = *tls_->stream;
  const bool is_flushed = stream.Flush();
  if (stream.state() == TlsStream::State::kFailed) {
    Fail(stream.error());
    return 1;
  }
  if (stream.state() != TlsStream::State::kUp || !is_flushed) {
    if (ended_) BeReady();  // which no event tells of again
    return 0;
  }
  BeReady();  // there may be more behind the handshake
  SendWelcome();
  return 1;
}

// The first bytes of a socket: they find room.
bool TcpLink::SendWhole(ByteSpan bytes) {
  const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  const ssize_t sent = tls_ != nullptr && tls_->stream.has_value()
                           ? tls_->stream->Write(&piece, 1)
                           : ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(bytes.size())) return true;
  Fail(SocketError(sent < 0 ? errno : ENOBUFS));
  return false;
}

void TcpLink::Adopt(Descriptor socket) {
  // Ours: a link takes one socket
  WEFT_DCHECK(!socket_.valid() && life_.state() == LinkLife::State::kConnecting);
  socket_ = std::move(socket);
  OwnDescriptor(socket_.get());
  SetDataOptions(socket_.get());
  if (const absl::Status status = BeginWatch(); !status.ok()) return Fail(status);
  if (tls_ != nullptr) return StartTls(TlsRole::kServer);
  SendWelcome();
}

void TcpLink::SendWelcome() {
  std::byte welcome[kWelcomeBytes];
  StoreLe64(welcome, kWelcomeMagic);
  if (SendWhole(welcome)) BecomeUp();
}

std::string TcpLink::kernel_tls() const {
  if (tls_ == nullptr || !tls_->by_kernel || !life_.up()) return "";
  const TlsStream& stream = *tls_->stream;
  switch (stream.records_by()) {
    case TlsStream::RecordsBy::kKernel:
      return "records by the kernel";
    case TlsStream::RecordsBy::kWeft:
      return StrCat("records by Weft: ", stream.why_not_kernel());
    case TlsStream::RecordsBy::kOpenssl:
      break;
  }
  return StrCat("records by OpenSSL: ", stream.why_not_kernel());
}

void TcpLink::BecomeUp() {
  if (tls_ != nullptr && !tls_->stream->why_not_kernel().empty()) {
    TellOfKernel(tls_->stream->why_not_kernel());
  }
  writable_ = true;
  if (has_unsent()) parts_->links.ScheduleRetry(this);
  if (life_.BecomeUp()) parts_->links.ScheduleEvent(this);
}

int TcpLink::OnWelcome() {
  const iovec place{dialing_->welcome + dialing_->welcome_bytes,
                    size_t{kWelcomeBytes} - dialing_->welcome_bytes};
  const ssize_t count = tls_ != nullptr ? tls_->stream->Read(&place, 1)
                                        : ::recv(socket_.get(), place.iov_base, place.iov_len, 0);
  if (count <= 0) return OnNothing(count);
  BeReady();  // there may be frames behind it, or the end
  dialing_->welcome_bytes = static_cast<uint8_t>(dialing_->welcome_bytes + count);
  if (dialing_->welcome_bytes < kWelcomeBytes) return 1;
  if (LoadLe64(dialing_->welcome) != kWelcomeMagic) {
    Fail(absl::DataLossError("the peer did not answer the join of a link as Weft does"));
    return 1;
  }
  dialing_.reset();
  BecomeUp();
  return 1;
}

void TcpLink::Fail(const absl::Status& why) {
  if (!life_.Fail(why)) return;
  Close();
  parts_->links.ScheduleEvent(this);
}

// Tells the peer by TLS's close_notify that this end was meant. Not while something is unsent: then
// the peer is to see a cut. It sees one as well where the socket is full: it is closed right behind
// this (and what the kernel does then, tls_kernel_stream.h says).
void TcpLink::EndTls() {
  if (tls_ != nullptr && life_.up() && output_.empty() && !has_unsent()) tls_->stream->End();
}

// Nothing of this process is touched through the socket any more. Operations have still to be told.
void TcpLink::Close() {
  if (socket_.valid()) {
    // By name: a child process may hold the socket open.
    if (watched_) epoll_ctl(parts_->epoll, EPOLL_CTL_DEL, socket_.get(), nullptr);
    watched_ = false;
    DisownDescriptor(socket_.get());
    socket_.Reset();
  }
  tls_.reset();
  input_.Clear();
  output_.Clear();
  writable_ = false;
  ListNode<TcpReadyTag>::Unlink();
  ListNode<LinkTurnTag>::Unlink();
  ListNode<TcpAwaitTag>::Unlink();
  parts_->likely.Forget(this);
  parts_->turn.Forget(this);
}

void TcpLink::Abandon() { Fail(absl::UnavailableError("the peer is dead or cut off")); }

// `why` is a copy: whoever is told may destroy this.
void TcpLink::EndAll(absl::Status why) {
  GoneFlag here(&gone_);
  while (TcpOperation* const operation = operations_.Front()) {
    if (Complete(operation, why); here.gone()) return;
  }
}

void TcpLink::DeliverEvent() {
  GoneFlag here(&gone_);
  if (!life_.up()) EndAll(life_.why_down());
  if (here.gone()) return;
  if (std::exchange(tell_room_, false) && life_.up()) handler()->OnSlotsFree();
  if (here.gone()) return;
  life_.Deliver([this] { parts_->links.ScheduleEvent(this); });
}

// --- sending -------------------------------------------------------------------------------------

bool TcpLink::HasRoom() {
  if (output_.batches() < kMaxBatchesInLine) [[likely]]
    return true;
  wants_room_ = true;
  return false;
}

SendSlot TcpLink::TakeSlot(uint32_t /*least*/) {
  return HasRoom() ? parts_->slots.Take() : SendSlot();
}

absl::Status TcpLink::Send(const SendSlot& slot, uint32_t bytes) {
  TcpSlot* const taken = TcpSlots::SlotOf(slot);
  if (!life_.up()) [[unlikely]] {
    parts_->slots.Give(taken);
    return life_.CheckUp();
  }
  output_.AddBatch(taken, bytes);
  // Who is alone takes no turn of others, whatever he sends of his transfers beside the batch.
  Pump(parts_->turn.is_alone(this) && parts_->turn.may_send() ? TcpOutput::kMostPumpBytes : 0);
  return absl::OkStatus();
}

// Of large transfers about `most_bytes`.
void TcpLink::Pump(uint64_t most_bytes) {
  if (!writable_) return;
  parts_->likely.OnSent(this);
  const TcpOutput::Result result =
      output_.Pump(socket_.get(), tls_ == nullptr ? nullptr : &*tls_->stream, most_bytes);
  parts_->turn.OnSent(this, output_.pumped_bytes());
  switch (result) {
    case TcpOutput::Result::kDone:
      break;
    case TcpOutput::Result::kBlocked:
      writable_ = false;
      ++parts_->stats.eagain;
      Watch();
      break;
    case TcpOutput::Result::kMore:
      if (!output_.has_transfers()) {
        parts_->links.ScheduleRetry(this);
      } else {
        parts_->links.ScheduleTurn(this);
      }
      break;
    case TcpOutput::Result::kBroken:
      return Fail(tls_ != nullptr ? tls_->stream->error() : SocketError(output_.error()));
  }
  if (wants_room_ && output_.batches() < kMaxBatchesInLine) {
    wants_room_ = false;
    tell_room_ = true;
    parts_->links.ScheduleEvent(this);
  }
}

void TcpLink::GoOn() { Pump(parts_->turn.most_bytes(this)); }

absl::Status TcpLink::Check(const Transfer& transfer) const {
  WEFT_RETURN_IF_ERROR(CheckTransfer(transfer));
  return parts_->regions.Has(*transfer.local) ? absl::OkStatus() : RegionOfAnother();
}

absl::StatusOr<Posted> TcpLink::Post(TransferKind kind, absl::Span<const Transfer> transfers,
                                     Operation* op) {
  // Ours: RemoteAccess has refused others
  WEFT_DCHECK(!transfers.empty() && transfers.size() <= kMaxBatchTransfers);
  WEFT_RETURN_IF_ERROR(life_.CheckUp());
  for (const Transfer& transfer : transfers) WEFT_RETURN_IF_ERROR(Check(transfer));
  if (ranges_ + transfers.size() > kMaxRangesOfLink) {
    wants_operations_ = true;
    return absl::ResourceExhaustedError(
        StrCat(ranges_, " one-sided operations are outstanding on this link"));
  }
  if (!parts_->operations.HasRoomFor(transfers.size())) {
    return absl::ResourceExhaustedError(StrCat(parts_->operations.size(),
                                               " one-sided operations are outstanding on this "
                                               "engine's path"));
  }
  TcpOperation* const operation = parts_->operations.Take();
  operation->output = &output_;
  operation->user = op;
  operation->is_read = kind == TransferKind::kRead;
  operation->in_order = kind != TransferKind::kWriteUnordered;
  operation->records = static_cast<uint32_t>(transfers.size());
  TcpOperation* last = nullptr;
  for (const Transfer& transfer : transfers) {
    TcpOperation* const record = last == nullptr ? operation : parts_->operations.TakeRecord();
    record->local = transfer.local->memory().data() + transfer.local_offset;
    record->remote = transfer.remote;
    operation->bytes_left += transfer.remote.length;
    if (last != nullptr) last->next = record;
    last = record;
  }
  operation->current = operation;
  operations_.PushBack(operation);
  ranges_ += operation->records;
  if (operation->is_read) {
    output_.AddRead(operation);
  } else {
    output_.AddWrite(operation);
  }
  parts_->links.ScheduleRetry(this);
  return Posted::kPending;
}

bool TcpLink::Complete(TcpOperation* operation, const absl::Status& status) {
  GoneFlag here(&gone_);
  decltype(operations_)::Remove(operation);
  ranges_ -= operation->records;
  Operation* const user = operation->user;
  parts_->operations.Give(operation);
  if (wants_operations_) {
    wants_operations_ = false;
    tell_room_ = true;
    parts_->links.ScheduleEvent(this);
  }
  user->OnComplete(status);
  return !here.gone() && life_.up();
}

// The region's destructor takes it out of the table, and tells those who are in the midst of it.
bool TcpLink::Reclaim(std::unique_ptr<Region> region) {
  region.reset();
  return true;
}

// --- receiving -----------------------------------------------------------------------------------

void TcpLink::OnReady(uint32_t events) {
  if (prefetch_->wanted()) prefetch_->Fetch();
  if (dialing_ != nullptr && !dialing_->connected) [[unlikely]] {
    if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) == 0) return;
    OnDialed();
  }
  if (!socket_.valid()) return;
  if ((events & EPOLLPRI) != 0) {
    return Fail(absl::DataLossError("the peer sent urgent data (MSG_OOB) by the socket of a link"));
  }
  if ((events & EPOLLOUT) != 0 && life_.up()) {
    writable_ = true;
    if (!output_.empty() || has_unsent()) parts_->links.ScheduleRetry(this);
  } else if (tls_ != nullptr) [[unlikely]] {
    BeReady();  // the handshake goes on
  }
  ended_ = ended_ || (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) BeReady();
}

// What is read and written for each message: all of this, but for its last part.
void TcpLink::GoCold() {
  if (!life_.up()) return;
  prefetch_->Begin(/*peer_flag=*/nullptr);
  const auto* const begin = reinterpret_cast<const std::byte*>(this);
  const auto* const end = static_cast<const std::byte*>(output_.large_part());
  prefetch_->Add(begin, static_cast<size_t>(end - begin));
}

void TcpLink::BeReady() {
  if (!ListNode<TcpReadyTag>::linked()) parts_->ready.PushBack(this);
}

// A read of the socket has brought no bytes.
int TcpLink::OnNothing(ssize_t count) {
  if (count == 0) {
    Fail(absl::UnavailableError("the peer closed the link"));
    return 1;
  }
  if (errno == EINTR) {
    BeReady();
    return 0;
  }
  if (errno == EAGAIN) {
    ListNode<TcpReadyTag>::Unlink();
    // TLS has taken a part of a record, or so many records without data that others have their
    // turn: what is behind it, the end perhaps, is read next, for no event tells of it again.
    if (tls_ != nullptr && has_more()) BeReady();
    return 0;
  }
  Fail(tls_ != nullptr ? tls_->stream->error() : SocketError(errno));
  return 1;
}

// As readv(2). The first `seen_bytes` may be looked at by others at any time (TlsStream::Read()).
ssize_t TcpLink::ReadTls(const iovec* iovecs, int count, size_t seen_bytes) {
  TlsStream& stream = *tls_->stream;
  const ssize_t received = stream.Read(iovecs, count, seen_bytes);
  if (stream.unsent() > 0) parts_->links.ScheduleRetry(this);  // OpenSSL's own answer
  return received;
}

int TcpLink::Receive() {
  if (!life_.up() || ListNode<LinkEventTag>::linked()) [[unlikely]] {
    if (life_.up()) {  // the handler hears of that first
      BeReady();
      return 0;
    }
    if (life_.state() == LinkLife::State::kConnecting) {
      if (dialing_ != nullptr && dialing_->connected) return OnWelcome();
      if (tls_ != nullptr && tls_->stream.has_value()) return OnTlsHandshake();
    }
    ListNode<TcpReadyTag>::Unlink();
    return 0;
  }
  const TcpInput::Room room = input_.MakeRoom();
  ssize_t count = 0;
  if (tls_ != nullptr) [[unlikely]] {
    count = ReadTls(room.begin(), room.count(), room.seen_bytes());
  } else {
    count = room.count() == 1
                ? ::recv(socket_.get(), room.buffer().iov_base, room.buffer().iov_len, 0)
                : ::readv(socket_.get(), room.begin(), room.count());
  }
  if (count <= 0) return OnNothing(count);
  parts_->recent.Note(this);
  parts_->likely.OnReceived(this);
  const auto bytes = static_cast<size_t>(count);
  parts_->turn.OnReceived(this, bytes);
  if (bytes == room.bytes() || has_more()) {
    BeReady();
  } else {
    ListNode<TcpReadyTag>::Unlink();  // an event will tell of what comes now
  }
  if (!Take(input_.OnReceived(room, bytes))) return 1;
  if (!output_.empty()) parts_->links.ScheduleRetry(this);
  return 1;
}

bool TcpLink::Take(TcpInput::Received received) {
  while (!received.empty()) {
    switch (input_.Next(&received)) {
      case TcpInput::Event::kNone:
        break;
      case TcpInput::Event::kBatch:
        if (!HandOut(input_.batch())) return false;
        break;
      case TcpInput::Event::kBatchInCell: {
        TcpReceiveMemory& memory = parts_->receive_memory;
        Block cell = input_.TakeCell();
        const bool goes_on = HandOut(input_.batch());
        memory.GiveCell(std::move(cell));
        if (!goes_on) return false;
        break;
      }
      case TcpInput::Event::kDone:
        if (!Complete(input_.operation(), absl::OkStatus())) return false;
        break;
      case TcpInput::Event::kRefused:
        if (!Complete(input_.operation(), Refused())) return false;
        break;
      case TcpInput::Event::kBroken:
        Fail(input_.error());
        return false;
    }
  }
  return true;
}

bool TcpLink::HandOut(ByteSpan batch) {
  GoneFlag here(&gone_);
  parts_->sink->OnReceived(batch, life_.handler());
  return !here.gone() && life_.up();
}

}  // namespace weft
