#include "transport/ofi/fabric_domain.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/inline.h"
#include "core/status.h"
#include "transport/ofi/fabric_link.h"

namespace weft {

FabricDomain::FabricDomain(const OfiOptions& options, std::shared_ptr<FabricObjects> objects,
                           const FabricTraits& traits)
    : options_(options), parts_(options, std::move(objects), traits) {
  path_.kind = traits.kind;
  path_.link = traits.link;
  path_.provider = absl::StrCat(parts_.objects->info->fabric_attr->prov_name, " (libfabric ",
                                FabricVersionText(), ")");
  path_.device = parts_.objects->info->domain_attr->name;
}

FabricDomain::~FabricDomain() { WEFT_DCHECK(parts_.stats.links_open == 0); }

// --- slots and memory --------------------------------------------------------------------------

absl::Status FabricDomain::AddSlots(uint32_t send, uint32_t receive) {
  WEFT_RETURN_IF_ERROR(parts_.receives.CheckRoom(receive));
  WEFT_RETURN_IF_ERROR(parts_.slots.Reserve(send, parts_.receives.MissingFor(receive)));
  parts_.slots.AddSends(send);
  if (parts_.receives.Add(receive)) return absl::OkStatus();
  RemoveSlots(send, receive);
  return absl::ResourceExhaustedError("the provider does not take more receives now");
}

void FabricDomain::RemoveSlots(uint32_t send, uint32_t receive) {
  parts_.slots.RemoveSends(send);
  parts_.receives.Remove(receive);
}

absl::StatusOr<std::unique_ptr<Region>> FabricDomain::Register(MutableByteSpan memory,
                                                               Access access) {
  if (memory.empty()) return absl::InvalidArgumentError("a region of 0 bytes cannot be registered");
  return FabricRegion::Open(&parts_.registrar, memory, access);
}

// --- completions -------------------------------------------------------------------------------

namespace {

// The provider's own words, where it has more of them: "transport retry counter exceeded".
std::string DetailOf(fid_cq* queue, const fi_cq_err_entry& entry) {
  if (entry.prov_errno == 0 || entry.prov_errno == entry.err) return "";
  char text[128] = {};
  const char* words = fi_cq_strerror(queue, entry.prov_errno, nullptr, text, sizeof(text) - 1);
  if (words == nullptr || *words == '\0') return "";
  return absl::StrCat(" (", words, ")");
}

}  // namespace

// Of a send or an operation.
void FabricDomain::OnCompleted(WorkId id, const absl::Status& status) {
  if (id.Is(WorkKind::kSend)) {
    Slot* const slot = parts_.slots.FindSend(id);
    if (slot != nullptr && slot->link != nullptr) slot->link->OnSendDone(slot, status);
  } else if (id.Is(WorkKind::kOperation)) {
    OperationRecord* const record = parts_.operations.Find(id);
    if (record != nullptr) record->link->OnPartDone(record, status);
  }
}

void FabricDomain::OnFailed(fid_cq* queue, const fi_cq_err_entry& entry) {
  const WorkId id(entry.op_context);
  if (id.Is(WorkKind::kReceive)) return parts_.receives.OnFailed(id, entry.err);
  OnCompleted(id, absl::UnavailableError(absl::StrCat(
                      "the provider reports: ", fi_strerror(entry.err), DetailOf(queue, entry))));
}

WEFT_INLINE int FabricDomain::ReadCompletions(int budget) {
  return parts_.queue.Read(
      budget,
      [this](const fi_cq_msg_entry& entry) {
        const WorkId id(entry.op_context);
        if (id.Is(WorkKind::kReceive)) [[likely]] {
          parts_.receives.OnDone(id, entry.len);
        } else {
          OnCompleted(id, absl::OkStatus());
        }
      },
      [this] { OnCompletionError(); },
      [this](fid_cq* queue, const fi_cq_err_entry& entry) { OnFailed(queue, entry); });
}

// --- turns -------------------------------------------------------------------------------------

int FabricDomain::Poll(int budget) {
  OutstandingOperations& operations = parts_.operations;
  int done = operations.has_deferred() ? operations.Deliver(budget) : 0;
  if (parts_.links.has_retries()) [[unlikely]]
    parts_.links.Retry();
  const int completions = ReadCompletions(budget);
  done += completions;
  if (parts_.receives.lacks(/*idle=*/completions == 0)) [[unlikely]]
    parts_.receives.TopUp();
  if (--turns_to_connections_ == 0) [[unlikely]] {
    turns_to_connections_ = kConnectionTurns;
    done += PollConnections(completions > 0);
  }
  if (parts_.links.has_events()) [[unlikely]]
    done += parts_.links.DeliverEvents();
  if (parts_.slots.ran_out() || operations.ran_out()) [[unlikely]]
    TellOfRoom();
  return done;
}

void FabricDomain::TellOfRoom() {
  const bool slots = parts_.slots.HasRoomAgain();
  const bool operations = parts_.operations.HasRoomAgain();
  if (slots || operations) parts_.links.TellSlotsFree();
}

bool FabricDomain::busy() const {
  return parts_.operations.size() > 0 || parts_.links.has_retries() || parts_.queue.in_flight() > 0;
}

}  // namespace weft
