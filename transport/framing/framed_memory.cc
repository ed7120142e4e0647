// Batches of one-sided operations, and reclaiming memory, of FramedConnection.

#include "transport/framing/framed_connection.h"

namespace weft {

absl::Status FramedConnection::ReadBatch(absl::Span<const Transfer>, Operation*) {
  return absl::UnimplementedError("batches");
}

absl::Status FramedConnection::WriteBatch(absl::Span<const Transfer>, Operation*) {
  return absl::UnimplementedError("batches");
}

absl::Status FramedConnection::WriteThenSend(absl::Span<const Transfer>, ByteSpan, Operation*) {
  return absl::UnimplementedError("batches");
}

bool FramedConnection::Reclaim(std::unique_ptr<Region> region, Operation*) {
  region.reset();
  return true;
}

}  // namespace weft
