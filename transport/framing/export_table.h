// The exports of one engine, as exports.h describes them.
#pragma once

#include <memory>

#include "transport/exports.h"

namespace weft {

class ExportTable final : public Exports {
 public:
  absl::StatusOr<std::unique_ptr<Export>> Add(MutableByteSpan, const ExportOptions&) override {
    return absl::UnimplementedError("exports");
  }
};

}  // namespace weft
