#include "transport/tcp/tcp_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/sockets/join.h"
#include "transport/sockets/socket.h"
#include "transport/tcp/tcp_parts.h"

namespace weft {
namespace {

// What the kernel holds of this link's before the network has it, in bytes: what a batch waits for
// behind a large transfer. As much as is made ahead (tcp_output.h): with a quarter of it, 1 MiB
// transfers under BBR were a tenth slower.
constexpr int kUnsentBytes = TcpOutput::kPiecesAhead * kPieceBytes;
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

std::string NameOf(const Nonce128& nonce) {
  char text[33];
  std::snprintf(text, sizeof(text), "%016" PRIx64 "%016" PRIx64, nonce.high, nonce.low);
  return text;
}

absl::Status Refused() {
  return absl::PermissionDeniedError(
      "remote access refused: unknown key, or outside of its bounds");
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

TcpLink::TcpLink(TcpParts* parts, LinkHandler* handler, const Nonce128& token,
                 const std::optional<LinkSecret>& secret)
    : parts_(parts),
      prefetch_(parts->recent.TakeList()),
      life_(handler),
      token_(token),
      output_(&parts->regions, &parts->slots, &parts->answers) {
  if (secret.has_value()) tls_.reset(new Tls{*secret, NameOf(token), {}});
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
  SetDataOptions(socket_.get());
  dials_ = true;
  return BeginWatch();
}

void TcpLink::FinishDial() {
  dials_ = false;
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return Fail(SocketError(error));
  if (!SendWhole(EncodeJoin(token_))) return;
  joined_ = true;
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

void TcpLink::BecomeUp() {
  writable_ = true;
  if (has_unsent()) parts_->links.ScheduleRetry(this);
  if (life_.BecomeUp()) parts_->links.ScheduleEvent(this);
}

int TcpLink::OnWelcome() {
  const iovec place{head_ + head_bytes_, static_cast<size_t>(kWelcomeBytes - head_bytes_)};
  const ssize_t count = tls_ != nullptr ? tls_->stream->Read(&place, 1)
                                        : ::recv(socket_.get(), place.iov_base, place.iov_len, 0);
  if (count <= 0) return OnNothing(count);
  BeReady();  // there may be frames behind it, or the end
  head_bytes_ = static_cast<uint8_t>(head_bytes_ + count);
  if (head_bytes_ < kWelcomeBytes) return 1;
  head_bytes_ = 0;
  if (LoadLe64(head_) == kWelcomeMagic) {
    BecomeUp();
  } else {
    Fail(absl::DataLossError("the peer did not answer the join of a link as Weft does"));
  }
  return 1;
}

void TcpLink::Fail(const absl::Status& why) {
  if (!life_.Fail(why)) return;
  Close();
  parts_->links.ScheduleEvent(this);
}

void TcpLink::BreakRules(const TcpHeader& header, std::string_view what) {
  Fail(absl::DataLossError(
      StrCat("the peer broke the rules of a tcp link: ", what, " (frame ", header.sequence,
             ", kind ", static_cast<int>(header.kind), ", length ", header.length, ", flags ",
             static_cast<int>(header.flags), ", operation ", header.operation, ")")));
}

// Tells the peer by TLS's close_notify that this end was meant. Not while something is unsent: then
// the peer is to see a cut.
void TcpLink::EndTls() {
  if (tls_ != nullptr && life_.up() && output_.empty() && !has_unsent()) tls_->stream->End();
}

// Nothing of this process is touched through the socket any more. Operations have still to be told.
void TcpLink::Close() {
  if (socket_.valid()) {
    // By name: a child process may hold the socket open.
    if (watched_) epoll_ctl(parts_->epoll, EPOLL_CTL_DEL, socket_.get(), nullptr);
    watched_ = false;
    socket_.Reset();
  }
  tls_.reset();
  output_.Clear();
  writable_ = false;
  body_ = Body::kNone;
  if (frame_ != nullptr) parts_->cells.Give(std::move(frame_));
  ListNode<TcpReadyTag>::Unlink();
  TcpRegionUser::Unlink();
  ListNode<TcpAwaitTag>::Unlink();
  parts_->likely.Forget(this);
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
  Pump();
  return absl::OkStatus();
}

void TcpLink::Pump() {
  if (!writable_) return;
  parts_->likely.OnSent(this);
  switch (output_.Pump(socket_.get(), tls_ == nullptr ? nullptr : &*tls_->stream)) {
    case TcpOutput::Result::kDone:
      break;
    case TcpOutput::Result::kBlocked:
      writable_ = false;
      ++parts_->stats.eagain;
      Watch();
      break;
    case TcpOutput::Result::kMore:
      parts_->links.ScheduleRetry(this);
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

void TcpLink::Retry() { Pump(); }

absl::Status TcpLink::Check(const Transfer& transfer) const {
  const RemoteSpan& remote = transfer.remote;
  const Region& local = *transfer.local;
  if (!parts_->regions.Has(local)) {
    return absl::InvalidArgumentError("the local region was registered for another path or engine");
  }
  const size_t room = local.memory().size();
  if (transfer.local_offset > room || remote.length > room - transfer.local_offset) {
    return absl::InvalidArgumentError(StrCat("local range [", transfer.local_offset, ", +",
                                             remote.length, ") exceeds the region of ", room,
                                             " bytes"));
  }
  if (remote.length == 0 || remote.offset + remote.length < remote.offset) {
    return absl::InvalidArgumentError(StrCat("remote range [", remote.offset, ", +", remote.length,
                                             ") is empty or wraps around"));
  }
  return absl::OkStatus();
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
  operation->link = this;
  operation->user = op;
  operation->is_read = kind == TransferKind::kRead;
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
  if (dials_ && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) FinishDial();
  if (dials_ || !socket_.valid()) return;
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
    if (tls_ != nullptr && (ended_ || tls_->stream->has_pending())) BeReady();
    return 0;
  }
  Fail(tls_ != nullptr ? tls_->stream->error() : SocketError(errno));
  return 1;
}

// As readv(2), and whether there is more whatever the socket says.
ssize_t TcpLink::ReadTls(const iovec* iovecs, int count, bool* more, size_t seen_bytes) {
  TlsStream& stream = *tls_->stream;
  const ssize_t received = stream.Read(iovecs, count, seen_bytes);
  *more = *more || stream.has_pending();
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
      if (joined_) return OnWelcome();
      if (tls_ != nullptr && tls_->stream.has_value()) return OnTlsHandshake();
    }
    ListNode<TcpReadyTag>::Unlink();
    return 0;
  }
  // Frames begin at multiples of 8 in the buffer, wherever the body before them ends.
  std::byte* const buffer = parts_->buffer;
  MutableByteSpan place;
  size_t lead = head_bytes_;
  if (body_ != Body::kNone) [[unlikely]] {
    place = Place();
    if (place.size() < std::min<uint64_t>(body_left_, kDirectBytes)) place = {};
    lead = (8 - (body_left_ - place.size() + padding_) % 8) % 8;
  } else if (padding_ > 0) [[unlikely]] {
    lead = 8 - padding_;
  }
  const size_t room = in_transfer_ ? kBehindPiece : TcpParts::kBufferBytes;
  iovec pieces[2] = {{place.data(), place.size()}, {buffer + lead, room - lead}};
  const size_t asked = place.size() + pieces[1].iov_len;
  bool more = ended_;
  ssize_t count = 0;
  if (tls_ != nullptr) [[unlikely]] {
    // A region that the peer writes to may be looked at by anybody at any time. The place of an
    // answer is its reader's, who is told once all of it has come; the rest is this side's alone.
    const size_t seen = body_ == Body::kWrite ? place.size() : 0;
    count = place.empty() ? ReadTls(&pieces[1], 1, &more, 0) : ReadTls(pieces, 2, &more, seen);
  } else {
    count = place.empty() ? ::recv(socket_.get(), pieces[1].iov_base, pieces[1].iov_len, 0)
                          : ::readv(socket_.get(), pieces, 2);
  }
  if (count <= 0) return OnNothing(count);
  parts_->recent.Note(this);
  parts_->likely.OnReceived(this);
  auto received = static_cast<size_t>(count);
  if (received == asked || more) {
    BeReady();
  } else {
    ListNode<TcpReadyTag>::Unlink();  // an event will tell of what comes now
  }
  const size_t direct = std::min(received, place.size());
  if (direct > 0 && !Advance(direct)) return 1;
  received -= direct;
  if (head_bytes_ > 0) {
    std::memcpy(buffer, head_, head_bytes_);
    received += std::exchange(head_bytes_, uint8_t{0});
    lead = 0;
  }
  if (received > 0 && !Take(buffer + lead, received)) return 1;
  if (!output_.empty()) parts_->links.ScheduleRetry(this);
  return 1;
}

// Takes what has been received into the buffer.
bool TcpLink::Take(const std::byte* at, size_t bytes) {
  while (bytes > 0) {
    if (body_ != Body::kNone) {
      const MutableByteSpan place = Place();
      const size_t taken = std::min<size_t>(
          bytes, body_ == Body::kNowhere ? static_cast<size_t>(body_left_) : place.size());
      if (body_ != Body::kNowhere) std::memcpy(place.data(), at, taken);
      at += taken;
      bytes -= taken;
      if (!Advance(taken)) return false;
      continue;
    }
    const size_t skipped = std::min<size_t>(bytes, padding_);
    padding_ = static_cast<uint8_t>(padding_ - skipped);
    at += skipped;
    bytes -= skipped;
    if (bytes > 0 && !TakeFrame(&at, &bytes)) return false;
    if (head_bytes_ > 0) return true;  // what is left is kept
  }
  return true;
}

// The next frame: whole, or its head, behind which its body follows.
bool TcpLink::TakeFrame(const std::byte** at, size_t* bytes) {
  const auto keep = [&] {
    std::memcpy(head_, *at, *bytes);
    head_bytes_ = static_cast<uint8_t>(*bytes);
    *bytes = 0;
    return true;
  };
  if (*bytes < kTcpHeaderBytes) return keep();
  const TcpHeader header = DecodeTcpHeader(*at);
  if (const char* const wrong = CheckTcpHeader(header, parts_->slots.widest_bytes())) {
    // The first byte of TLS, where a frame of 22 bytes would be wrong.
    const bool is_tls = sequence_ == 0 && **at == std::byte{0x16};
    BreakRules(header, is_tls ? "it begins TLS, but its connection has no security" : wrong);
    return false;
  }
  if (header.sequence != sequence_) {
    BreakRules(header, StrCat("number ", sequence_, " was to come"));
    return false;
  }
  const std::byte* const payload = *at + kTcpHeaderBytes;
  const bool is_piece = header.kind == TcpFrameKind::kData || header.kind == TcpFrameKind::kWrite;
  const size_t whole = kTcpHeaderBytes + header.length + TcpPadding(header.length);
  const size_t taken = header.kind == TcpFrameKind::kWrite ? kTcpHeaderBytes + kTcpWriteHeadBytes
                       : is_piece || *bytes < whole        ? kTcpHeaderBytes
                                                           : whole;
  if (*bytes < taken) return keep();
  ++sequence_;
  in_transfer_ = is_piece && (header.flags & kTcpLast) == 0;
  *at += taken;
  *bytes -= taken;
  if (taken == whole && !is_piece) return OnFrame(header, payload);
  return BeginBody(header, payload);
}

bool TcpLink::BeginBody(const TcpHeader& header, const std::byte* payload) {
  header_ = header;
  body_left_ = header.length;
  padding_ = static_cast<uint8_t>(TcpPadding(header.length));
  if (header.kind == TcpFrameKind::kData) return BeginAnswer(header);
  if (header.kind == TcpFrameKind::kWrite) return BeginWrite(header, payload);
  frame_ = parts_->cells.Take();
  place_ = frame_.get();
  body_ = Body::kFrame;
  return true;
}

bool TcpLink::BeginAnswer(const TcpHeader& header) {
  TcpOperation* const operation = FindOperation(header);
  if (operation == nullptr || !operation->is_read || !output_.HasLeft(*operation)) {
    BreakRules(header, "it answers no read of this side");
    return false;
  }
  if (header.length > operation->bytes_left) {
    BreakRules(header, StrCat("only ", operation->bytes_left, " bytes of it were still to come"));
    return false;
  }
  answered_ = operation;
  body_ = Body::kAnswer;
  return true;
}

bool TcpLink::BeginWrite(const TcpHeader& header, const std::byte* payload) {
  body_left_ -= kTcpWriteHeadBytes;
  if (!std::exchange(write_goes_on_, true)) {
    written_ = header.operation;
    refused_ = false;
  } else if (written_ != header.operation) {
    BreakRules(header, StrCat("the write ", written_, " has not ended"));
    return false;
  }
  const RemoteSpan span = {LoadLe64(payload), LoadLe64(payload + 8), body_left_};
  const MutableByteSpan memory = parts_->regions.Find(span, /*write=*/true);
  if (memory.empty()) refused_ = true;
  if (refused_) {
    body_ = Body::kNowhere;
    return true;
  }
  body_ = Body::kWrite;
  place_ = memory.data();
  region_key_ = span.key;
  parts_->regions.Note(this);
  return true;
}

// Where the next bytes go, as far as they lie together.
MutableByteSpan TcpLink::Place() const {
  if (body_ == Body::kFrame || body_ == Body::kWrite) return {place_, body_left_};
  if (body_ != Body::kAnswer) return {};
  const TcpOperation& record = *answered_->current;
  const uint64_t room = record.remote.length - answered_->moved;
  return {record.local + answered_->moved, std::min(room, body_left_)};
}

bool TcpLink::Advance(size_t bytes) {
  body_left_ -= bytes;
  if (body_ == Body::kAnswer) {
    answered_->bytes_left -= bytes;
    answered_->Move(bytes);
  } else if (body_ != Body::kNowhere) {
    place_ += bytes;
  }
  return body_left_ > 0 || FinishBody();
}

bool TcpLink::FinishBody() {
  const TcpHeader header = header_;
  switch (std::exchange(body_, Body::kNone)) {
    case Body::kNone:
      break;
    case Body::kFrame: {
      TcpParts* const parts = parts_;
      std::unique_ptr<std::byte[]> frame = std::move(frame_);
      const bool goes_on = OnFrame(header, frame.get());
      parts->cells.Give(std::move(frame));
      return goes_on;
    }
    case Body::kAnswer:
      if ((header.flags & kTcpLast) != 0) return FinishOperation(header, answered_);
      break;
    case Body::kWrite:
    case Body::kNowhere:
      if ((header.flags & kTcpLast) == 0) break;
      write_goes_on_ = false;
      return Owe(header, [&] { output_.AddEnd(written_, refused_); });
  }
  return true;
}

bool TcpLink::OnFrame(const TcpHeader& header, const std::byte* payload) {
  if (header.kind == TcpFrameKind::kBatch) [[likely]] {
    GoneFlag here(&gone_);
    parts_->sink->OnReceived({payload, header.length}, life_.handler());
    return !here.gone() && life_.up();
  }
  return header.kind == TcpFrameKind::kRead ? OnRead(header, payload) : OnEnd(header);
}

bool TcpLink::OnRead(const TcpHeader& header, const std::byte* spans) {
  const auto ranges = static_cast<uint32_t>(header.length / kTcpSpanBytes);
  if (output_.ranges_owed() + ranges > kMaxRangesOfLink) {
    BreakRules(header, StrCat("it reads more than ", kMaxRangesOfLink, " ranges at one time"));
    return false;
  }
  return Owe(header, [&] { output_.AddAnswer(header.operation, spans, ranges); });
}

// A peer that asks, and does not take the answers.
template <class Add>
bool TcpLink::Owe(const TcpHeader& header, Add add) {
  if (output_.small_bytes() > TcpOutput::kMaxSmallBytes) {
    BreakRules(header, "the peer does not take the answers of what it asks for");
    return false;
  }
  add();
  return true;
}

TcpOperation* TcpLink::FindOperation(const TcpHeader& header) const {
  TcpOperation* const operation = parts_->operations.Find(header.operation);
  return operation != nullptr && operation->link == this ? operation : nullptr;
}

bool TcpLink::OnEnd(const TcpHeader& header) {
  TcpOperation* const operation = FindOperation(header);
  if (operation == nullptr || !output_.HasLeft(*operation)) {
    BreakRules(header, "it ends no operation of this side");
    return false;
  }
  if (header.flags == kTcpRefused) return Complete(operation, Refused());
  if (!operation->is_read) return Complete(operation, absl::OkStatus());
  return FinishOperation(header, operation);
}

// A read is said to have succeeded.
bool TcpLink::FinishOperation(const TcpHeader& header, TcpOperation* operation) {
  if (operation->bytes_left > 0) {
    BreakRules(header, StrCat(operation->bytes_left, " bytes of the answer are missing"));
    return false;
  }
  return Complete(operation, absl::OkStatus());
}

// --- regions -------------------------------------------------------------------------------------

void TcpLink::OnRegionGone(uint64_t key) {
  if (body_ != Body::kWrite) return;
  if (region_key_ != key) return parts_->regions.Note(this);
  body_ = Body::kNowhere;
  refused_ = true;
}

}  // namespace weft
