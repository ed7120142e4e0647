#include "rpc/memory/write_proofs.h"

#include "core/status.h"

namespace weft {

absl::StatusOr<Posted> WriteProofs::Post(Connection& connection, const RemoteSpan* last_byte,
                                         LocalMemory* into, RemoteOperation& operation) {
  RemoteAccess& memory = connection.memory();
  if (last_byte != nullptr) {
    const absl::StatusOr<const Region*> region = into->For(connection);
    no_reads_ = !region.ok();
    if (region.ok()) {
      const Transfer read = {*region, 0, *last_byte};
      return memory.Post(TransferKind::kRead, {&read, 1}, &operation);
    }
  }
  WEFT_RETURN_IF_ERROR(memory.Probe(&operation));
  return Posted::kPending;
}

bool WriteProofs::WantsQuestion() {
  if (question_ == nullptr) return ended_ > arrived_;
  ask_again_ = true;
  return false;
}

}  // namespace weft
