#include "rpc/layout/layout_copy.h"

#include "core/strings.h"

namespace weft::internal {

absl::Status LayoutFiller::TooLong(std::string_view message, std::string_view field, size_t size,
                                   size_t room, std::string_view what) {
  return absl::InvalidArgumentError(StrCat("field ", field, " of ", message, " has ", size, what,
                                           "; its fixed layout has room for ", room));
}

absl::Status CannotParse(std::string_view message, size_t bytes) {
  return absl::InvalidArgumentError(StrCat("the ", bytes, " bytes cannot be decoded as ", message));
}

}  // namespace weft::internal
