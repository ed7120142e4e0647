#include "rpc/server/handover.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "core/log.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft {
namespace {

constexpr char kHello[] = "hello 1";
constexpr char kHave[] = "have";

// What follows `word` and a blank in a line; none: it is another line.
std::optional<std::string> After(std::string_view word, const std::string& line) {
  if (line.size() <= word.size() || line.compare(0, word.size(), word) != 0) return std::nullopt;
  if (line[word.size()] != ' ') return std::nullopt;
  return line.substr(word.size() + 1);
}

// Of this side.
absl::Status Stopped() { return absl::CancelledError("this server shuts down"); }

absl::Status UnknownLine(const std::string& line) {
  constexpr size_t kShown = 40;  // of what may be anything
  return absl::DataLossError(
      StrCat("a line of ", line.size(), " bytes that is none of a handover: ",
             absl::CHexEscape(ToAbsl(std::string_view(line).substr(0, kShown)))));
}

}  // namespace

std::unique_ptr<Handover> Handover::Make(const Cores& cores) {
  const std::string& path = cores.front()->options().handover_path;
  if (path.empty()) return nullptr;
  return std::unique_ptr<Handover>(new Handover(path, cores));
}

Handover::Handover(std::string path, const Cores& cores) : path_(std::move(path)), cores_(cores) {}

// --- from the process before --------------------------------------------------------------------

absl::StatusOr<HandoverMessage> Handover::Ask(const std::string& question) {
  WEFT_RETURN_IF_ERROR(SendHandover(predecessor_.get(), question));
  WEFT_ASSIGN_OR_RETURN(HandoverMessage answer, ReceiveHandover(predecessor_.get(), kAnswerMs));
  if (const std::optional<std::string> why = After("refused", answer.text)) {
    return absl::FailedPreconditionError(StrCat("process ", PeerProcessId(predecessor_.get()),
                                                ", which serves at ", path_,
                                                ", does not hand over: ", *why));
  }
  return answer;
}

absl::Status Handover::FindPredecessor() {
  if (std::exchange(looked_, true)) return absl::OkStatus();
  absl::StatusOr<Descriptor> found = ConnectToPredecessor(path_);
  if (!found.ok()) looked_ = false;
  WEFT_RETURN_IF_ERROR(found.status());
  if (!found->valid()) return absl::OkStatus();
  predecessor_ = *std::move(found);
  const absl::StatusOr<HandoverMessage> answer = Ask(kHello);
  if (answer.ok() && answer->text == kHello) return absl::OkStatus();
  predecessor_.Reset();
  if (absl::IsUnavailable(answer.status())) return absl::OkStatus();  // it ends just now
  looked_ = false;
  return answer.ok() ? UnknownLine(answer->text) : answer.status();
}

absl::Status Handover::CheckNotStopped() const {
  return stopped_ ? absl::FailedPreconditionError("the server has been shut down")
                  : absl::OkStatus();
}

absl::StatusOr<Descriptor> Handover::TakeListener(const std::string& address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  WEFT_RETURN_IF_ERROR(CheckNotStopped());
  if (ready_) return Descriptor();
  WEFT_RETURN_IF_ERROR(FindPredecessor());
  if (!predecessor_.valid()) return Descriptor();
  absl::StatusOr<HandoverMessage> answer = Ask(StrCat("take ", address));
  if (absl::IsUnavailable(answer.status())) {  // it ends just now
    predecessor_.Reset();
    return Descriptor();
  }
  WEFT_RETURN_IF_ERROR(Annotate(answer.status(), StrCat("take over ", address)));
  if (answer->text == StrCat("none ", address)) return Descriptor();
  if (answer->text != StrCat("socket ", address) || !answer->descriptor.valid()) {
    return UnknownLine(answer->text);
  }
  took_ = true;
  return std::move(answer->descriptor);
}

// What can fail comes before the old process is asked to go.
absl::Status Handover::Ready() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const internal::LogScope scope(cores_.front()->engine().log());
  WEFT_RETURN_IF_ERROR(CheckNotStopped());
  if (std::exchange(ready_, true)) {
    return absl::FailedPreconditionError("Server::Ready() was called before");
  }
  WEFT_RETURN_IF_ERROR(FindPredecessor());
  stop_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_.valid()) return StatusFromErrno(errno, "create an eventfd for handovers");
  WEFT_ASSIGN_OR_RETURN(listener_, PrepareForSuccessor(path_));
  absl::Status status;
  if (predecessor_.valid()) {
    status = TakeClients();
  } else if (took_) {
    status = Accept({});
  }
  if (status.ok()) status = TakePath(&listener_);
  if (!status.ok()) {
    RemoveHandoverFile(listener_);
    listener_.socket.Reset();
    return status;
  }
  thread_ = std::thread([this] {
    const internal::LogScope scope(cores_.front()->engine().log());
    Offer();
  });
  return absl::OkStatus();
}

// Until the old process says go, or ends: then whoever waits at the sockets is this one's. Before
// that nobody reads what the clients say: the old process may take them back.
absl::Status Handover::TakeClients() {
  Clients clients;
  absl::Status status = SendHandover(predecessor_.get(), "ready");
  while (status.ok()) {
    absl::StatusOr<HandoverMessage> message = ReceiveHandover(predecessor_.get(), kAnswerMs);
    status = message.status();
    if (!status.ok() || message->text == "go") break;
    if (const std::optional<std::string> why = After("refused", message->text)) {
      status = absl::FailedPreconditionError(*why);
      break;
    }
    const std::optional<std::string> address = After("client", message->text);
    if (!address.has_value() || !message->descriptor.valid()) {
      status = UnknownLine(message->text);
    } else {
      clients.emplace_back(*address, std::move(message->descriptor));
    }
  }
  if (status.ok()) status = SendHandover(predecessor_.get(), kHave);
  if (absl::IsUnavailable(status)) {
    WEFT_LOG(kWarning, "the process that served before ended while it handed over at ", path_,
             "; this one serves now");
    status = absl::OkStatus();
  }
  predecessor_.Reset();
  WEFT_RETURN_IF_ERROR(Annotate(status, "the process that serves now does not hand over"));
  return Accept(std::move(clients));
}

absl::Status Handover::Accept(Clients clients) {
  WEFT_RETURN_IF_ERROR(cores_.front()->ResumeAccepting());
  for (auto& [address, client] : clients) cores_.front()->TakeClient(address, std::move(client));
  return absl::OkStatus();
}

// --- to the process after -----------------------------------------------------------------------

void Handover::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  predecessor_.Reset();
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  // It cannot be full: nobody else writes.
  [[maybe_unused]] const ssize_t count = ::write(stop_.get(), &one, sizeof(one));
  thread_.join();
  if (!handed_) RemoveHandoverFile(listener_);
  listener_.socket.Reset();
}

void Handover::Offer() {
  while (!handed_) {
    pollfd waits[2] = {{listener_.socket.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(waits, 2, -1) < 0) continue;
    if (waits[1].revents != 0) return;
    const absl::StatusOr<Descriptor> successor = AcceptSuccessor(listener_.socket.get());
    if (!successor.ok()) {
      WEFT_LOG_EVERY_N_SEC(kWarning, 10, "nothing is handed over at ", path_, ": ",
                           ToStd(successor.status().message()));
      Pause();
    } else if (successor->valid()) {
      Serve(*successor);
    }
  }
  listener_.socket.Reset();
  const auto& on_handed_over = cores_.front()->options().on_handed_over;
  if (on_handed_over) on_handed_over();
}

void Handover::Pause() {
  pollfd stopped{stop_.get(), POLLIN, 0};
  ::poll(&stopped, 1, kPauseMs);
}

bool Handover::AwaitLine(const Descriptor& successor) {
  while (true) {
    pollfd waits[3] = {{successor.get(), POLLIN, 0},
                       {stop_.get(), POLLIN, 0},
                       {listener_.socket.get(), POLLIN, 0}};
    if (::poll(waits, 3, -1) < 0) continue;
    if (waits[1].revents != 0) return false;
    // First: who comes after a successor that has gone is none beside it.
    if (waits[0].revents != 0) return true;
    if (waits[2].revents != 0) RefuseOther(successor);
  }
}

void Handover::RefuseOther(const Descriptor& successor) {
  const absl::StatusOr<Descriptor> other = AcceptSuccessor(listener_.socket.get());
  if (!other.ok()) return Pause();
  if (!other->valid()) return;
  // A socket that is closed while it has something unread loses what was sent on it.
  const absl::Status heard = ReceiveHandover(other->get(), kOtherMs).status();
  // It may be gone.
  const absl::Status sent = SendHandover(
      other->get(),
      StrCat("refused process ", PeerProcessId(successor.get()), " is about to take over"));
  WEFT_LOG_EVERY_N_SEC(kWarning, 1, "process ", PeerProcessId(other->get()),
                       " wants to take over at ", path_, " while process ",
                       PeerProcessId(successor.get()), " does; it is refused");
}

void Handover::Serve(const Descriptor& successor) {
  absl::Status status;
  bool ready = false;
  gave_ = false;
  while (status.ok() && !ready) {
    if (!AwaitLine(successor)) {
      status = Stopped();
      break;
    }
    absl::StatusOr<HandoverMessage> message = ReceiveHandover(successor.get(), 0);
    status = message.ok() ? Answer(successor, message->text, &ready) : message.status();
  }
  if (status.ok()) status = HandOver(successor);
  if (status.ok()) {
    handed_ = true;
    WEFT_LOG(kInfo, "process ", PeerProcessId(successor.get()), " has taken over at ", path_);
    return;
  }
  if (absl::IsCancelled(status)) {
    // It takes this one's end for its turn.
    if (gave_) cores_.front()->LeaveAddresses();
    return;
  }
  // It may be gone.
  const absl::Status told = SendHandover(
      successor.get(), StrCat("refused ", ToStd(status.message().substr(0, kMaxHandoverText / 2))));
  WEFT_LOG_EVERY_N_SEC(kWarning, 1, "process ", PeerProcessId(successor.get()),
                       " did not take over at ", path_,
                       ", and this one goes on: ", ToStd(status.message()));
}

absl::Status Handover::Answer(const Descriptor& successor, const std::string& line, bool* ready) {
  *ready = line == "ready";
  if (*ready) return absl::OkStatus();
  if (line == kHello) return SendHandover(successor.get(), kHello);
  const std::optional<std::string> address = After("take", line);
  if (!address.has_value()) return UnknownLine(line);
  const Descriptor socket = cores_.front()->ListeningSocket(*address);
  gave_ = gave_ || socket.valid();
  return SendHandover(successor.get(), StrCat(socket.valid() ? "socket " : "none ", *address),
                      socket.get());
}

absl::Status Handover::HandOver(const Descriptor& successor) {
  ServerCore& first = *cores_.front();  // has the sockets
  first.HoldClients();
  absl::Status status = AwaitHandshakes(successor);
  Clients clients = first.StopAccepting();
  if (status.ok()) status = GiveClients(successor, clients);
  if (status.ok()) {
    for (const std::unique_ptr<ServerCore>& core : cores_) core->MoveAway();
    return absl::OkStatus();
  }
  const absl::Status resumed = first.ResumeAccepting();
  if (!resumed.ok()) {
    WEFT_LOG(kError, "nobody is accepted any more: ", ToStd(resumed.message()));
  }
  for (auto& [address, client] : clients) first.TakeClient(address, std::move(client));
  return status;
}

absl::Status Handover::AwaitHandshakes(const Descriptor& successor) {
  constexpr int kLookMs = 1;
  Clock& clock = cores_.front()->engine().clock();
  const uint64_t end_ns = clock.NowNs() + kHandshakeNs;
  const auto under_way = [](const auto& core) { return core->HasHandshakes(); };
  while (std::any_of(cores_.begin(), cores_.end(), under_way) && clock.NowNs() < end_ns) {
    pollfd waits[2] = {{successor.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(waits, 2, kLookMs) <= 0) continue;
    if (waits[1].revents != 0) return Stopped();
    WEFT_RETURN_IF_ERROR(ReceiveHandover(successor.get(), 0).status());
    return absl::DataLossError("it speaks before it is told to go");
  }
  return absl::OkStatus();
}

// They stay open here as well, until it is certain that they are the other one's.
absl::Status Handover::GiveClients(const Descriptor& successor, const Clients& clients) {
  for (const auto& [address, client] : clients) {
    WEFT_RETURN_IF_ERROR(SendHandover(successor.get(), StrCat("client ", address), client.get()));
  }
  WEFT_RETURN_IF_ERROR(SendHandover(successor.get(), "go"));
  WEFT_ASSIGN_OR_RETURN(const HandoverMessage last, ReceiveHandover(successor.get(), kAnswerMs));
  return last.text == kHave ? absl::OkStatus() : UnknownLine(last.text);
}

}  // namespace weft
