#include "rpc/layout/method_layouts.h"

#include "core/bytes.h"
#include "core/strings.h"

namespace weft {

bool DecodeProtobuf(const LayoutType* type, ByteSpan from, CallBody to) {
  if (type != nullptr) return type->from_protobuf(AsStringView(from), to.record).ok();
  return to.message->ParsePartialFromArray(from.data(), static_cast<int>(from.size())) &&
         to.message->IsInitialized();
}

std::string WhyNotDecoded(const LayoutSide& side, ByteSpan from, CallBody to) {
  if (side.fixed()) {
    return StrCat("it has ", from.size(), " bytes; the layout of ", side.type->name, " has ",
                  side.type->bytes);
  }
  return std::string(ToStd(side.type->from_protobuf(AsStringView(from), to.record).message()));
}

}  // namespace weft
