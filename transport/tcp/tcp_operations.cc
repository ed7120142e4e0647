#include "transport/tcp/tcp_operations.h"

#include <utility>

namespace weft {

TcpOperation* TcpOperations::Take() {
  SlabHandle handle;
  TcpOperation* const operation = records_.Allocate(&handle);
  operation->number = handle.slot | handle.generation << kPlaceBits;
  operation->sent_at = TcpOperation::kNotSent;
  operation->moved = operation->bytes_left = 0;
  if (handle.slot >= by_place_.size()) by_place_.resize(handle.slot + size_t{1});
  by_place_[handle.slot] = operation;
  return operation;
}

void TcpOperations::Give(TcpOperation* operation) {
  by_place_[operation->number & kPlaceMask] = nullptr;
  IntrusiveList<TcpLineItem, TcpLineTag>::Remove(operation);
  while (operation != nullptr) {
    TcpOperation* const record = operation;
    operation = std::exchange(record->next, nullptr);
    records_.Free(records_.HandleOf(record));
  }
}

}  // namespace weft
