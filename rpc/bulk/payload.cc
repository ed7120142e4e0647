#include "rpc/bulk/payload.h"

#include "absl/strings/str_format.h"
#include "core/crc32c.h"
#include "core/strings.h"

namespace weft {

void DescribePayload(ByteSpan payload, uint32_t window, const BulkOptions& options, Bulk* field) {
  field->Clear();
  field->set_length(payload.size());
  field->set_window(window);
  if (!options.crc32c) return;
  field->set_crc32c(Crc32c(payload));
  field->set_has_crc32c(true);
}

absl::Status VerifyPayload(ByteSpan payload, const Bulk& field) {
  if (payload.size() != field.length()) {
    return absl::DataLossError(
        StrCat("the payload has ", payload.size(), " bytes; its sender says ", field.length()));
  }
  if (!field.has_crc32c()) return absl::OkStatus();
  const uint32_t crc = Crc32c(payload);
  if (crc == field.crc32c()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("the payload of %d bytes has the CRC32C %08x; its sender says %08x",
                      field.length(), crc, field.crc32c()));
}

}  // namespace weft
