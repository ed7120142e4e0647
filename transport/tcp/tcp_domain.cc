#include "transport/tcp/tcp_domain.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/sockets/address.h"

namespace weft {
namespace {

constexpr uint32_t kLeastSlotBytes = 256;
constexpr uint32_t kMostSlotBytes = 128 << 10;
constexpr uint32_t kSlotStep = 64;
constexpr uint32_t kMostOperations = 65536;

absl::Status CheckOptions(const TcpOptions& options) {
  if (options.sink == nullptr) return absl::InvalidArgumentError("TcpOptions::sink is null");
  const auto is_right = [](uint32_t bytes) {
    return bytes >= kLeastSlotBytes && bytes <= kMostSlotBytes && bytes % kSlotStep == 0;
  };
  if (!is_right(options.slot_bytes) ||
      (options.wide_slot_bytes != 0 && !is_right(options.wide_slot_bytes))) {
    return absl::InvalidArgumentError(
        StrCat("TcpOptions::slot_bytes is ", options.slot_bytes, ", wide_slot_bytes is ",
               options.wide_slot_bytes, "; both must be ", kLeastSlotBytes, "..", kMostSlotBytes,
               " and a multiple of ", kSlotStep, ", the second may be 0"));
  }
  if (options.max_outstanding_operations < 1 ||
      options.max_outstanding_operations > kMostOperations) {
    return absl::InvalidArgumentError(StrCat("TcpOptions::max_outstanding_operations is ",
                                             options.max_outstanding_operations, "; it must be 1..",
                                             kMostOperations));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LinkDomain>> OpenTcpDomain(const TcpOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckOptions(options));
  Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return StatusFromErrno(errno, "create an epoll instance");
  return std::make_unique<TcpDomain>(options, std::move(epoll));
}

TcpDomain::TcpDomain(const TcpOptions& options, Descriptor epoll)
    : epoll_(std::move(epoll)), parts_(options) {
  parts_.epoll = epoll_.get();
  path_.kind = PathKind::kTcp;
  path_.link = LinkKind::kIp;
  path_.provider = "sockets";
  path_.device = "kernel";
}

TcpDomain::~TcpDomain() {
  // Ours: links and regions go before their domain
  WEFT_CHECK(parts_.stats.links_open == 0 && parts_.stats.registrations_open == 0);
}

absl::Status TcpDomain::AddSlots(uint32_t send, uint32_t receive) {
  // The kernel holds what has not been received: this is an account.
  parts_.stats.receives_posted += receive;
  parts_.slots.Ask(send);
  return absl::OkStatus();
}

void TcpDomain::RemoveSlots(uint32_t send, uint32_t receive) {
  parts_.stats.receives_posted -= receive;
  parts_.slots.GiveUp(send);
}

absl::StatusOr<std::unique_ptr<Link>> TcpDomain::Connect(const LinkPeer& peer,
                                                         LinkHandler* handler) {
  WEFT_ASSIGN_OR_RETURN(const KernelAddress address, ParseNumericAddress(peer.address));
  auto link = std::make_unique<TcpLink>(&parts_, handler, peer);
  WEFT_RETURN_IF_ERROR(link->Dial(address));
  return std::unique_ptr<Link>(std::move(link));
}

absl::StatusOr<std::unique_ptr<Link>> TcpDomain::Accept(const LinkPeer& peer,
                                                        LinkHandler* handler) {
  auto link = std::make_unique<TcpLink>(&parts_, handler, peer);
  parts_.awaiting.PushBack(link.get());
  return std::unique_ptr<Link>(std::move(link));
}

// All are compared: no more can be learned from the time than how many wait.
absl::Status TcpDomain::TakeSocket(Descriptor socket, const Nonce128& nonce) {
  TcpLink* found = nullptr;
  for (TcpLink& link : parts_.awaiting) {
    if (link.token() == nonce) found = &link;
  }
  if (found == nullptr) return absl::NotFoundError("no link waits for a socket with this token");
  decltype(parts_.awaiting)::Remove(found);
  found->Adopt(std::move(socket));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Region>> TcpDomain::Register(MutableByteSpan memory, Access access) {
  if (memory.empty()) return absl::InvalidArgumentError("a region of 0 bytes cannot be registered");
  return parts_.regions.Register(memory, access);
}

// --- turns --------------------------------------------------------------------------------------

// Whether it has brought something.
bool TcpDomain::LookAt(TcpLink* link) {
  if (parts_.likely.is_settled(link)) link->Unwatch();
  return link->Receive() > 0;
}

void TcpDomain::LookAtAll() {
  epoll_event events[kMaxEvents];
  const int count = epoll_wait(epoll_.get(), events, kMaxEvents, /*timeout=*/0);
  for (int i = 0; i < count; ++i)
    static_cast<TcpLink*>(events[i].data.ptr)->OnReady(events[i].events);
}

int TcpDomain::ReceiveReady(int budget) {
  int done = 0;
  // One at least: the likely link, which came before these, may bring as much as a turn takes.
  TakeTurns(&parts_.ready, [&](TcpLink* link) {
    done += link->Receive();
    return done < budget && parts_.turn.may_receive();
  });
  return done;
}

void TcpDomain::SendInTurn() {
  parts_.links.GiveTurns([&](TcpLink* link) {
    link->GoOn();
    return parts_.turn.may_send();
  });
}

int TcpDomain::Poll(int budget) {
  parts_.turn.Begin();
  if (parts_.links.has_retries()) parts_.links.Retry();
  TcpLink* const likely = parts_.likely.get();
  // Where it has brought so much that there is more it stands among the others.
  const bool is_first = likely != nullptr && !parts_.ready.IsLinked(likely);
  int done = is_first && LookAt(likely) ? 1 : 0;
  if (done == 0 || --turns_to_look_ <= 0 || parts_.turn.received_bytes() >= kBytesToLookAtAll) {
    turns_to_look_ = kLooksBetween;
    LookAtAll();
    // It has had its turn, unless it is gone: others come before it.
    if (done != 0 && parts_.likely.get() == likely && parts_.ready.IsLinked(likely)) {
      parts_.ready.Remove(likely);
      parts_.ready.PushBack(likely);
    }
  }
  if (!parts_.ready.empty()) done += ReceiveReady(budget);
  if (parts_.links.has_retries()) parts_.links.Retry();
  if (parts_.links.has_turns()) SendInTurn();
  if (parts_.links.has_events()) [[unlikely]]
    done += parts_.links.DeliverEvents();
  if (parts_.slots.has_news() || parts_.operations.has_news()) [[unlikely]] {
    const bool slots = parts_.slots.HasRoomAgain();
    const bool operations = parts_.operations.HasRoomAgain();
    if (slots || operations) parts_.links.TellSlotsFree();
  }
  return done;
}

bool TcpDomain::Arm() {
  const auto has_work = [this] {
    return parts_.links.has_retries() || parts_.links.has_events() || !parts_.ready.empty() ||
           parts_.links.has_turns() || parts_.slots.has_news() || parts_.operations.has_news();
  };
  if (has_work()) return false;
  parts_.likely.Watch();  // what has come by it the descriptor tells of now, as of all others
  return !has_work();
}

}  // namespace weft
