// Between structs of fixed layout and their protobuf messages: what the generated CopyTo() and
// CopyFrom() are made of. Not for direct use.
//
// A message always has room for what a struct holds. The other way round, bytes and repeated fields
// of a message may be shorter than in the layout, and are filled up with zeros (so that an empty
// message is a struct of zeros), or longer, which is an error.
//
// Threads: values.
#pragma once

#include <google/protobuf/repeated_field.h>
#if __has_include(<google/protobuf/repeated_ptr_field.h>)
#include <google/protobuf/repeated_ptr_field.h>
#endif

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "rpc/layout/fixed_layout.h"
#include "rpc/layout/method_layouts.h"

namespace weft::internal {

// A number that a closed enum knows, or its default: more would be no message of that type.
template <class Enum>
Enum KnownEnum(Enum value, bool (*is_valid)(int), Enum otherwise) {
  return is_valid(static_cast<int>(value)) ? value : otherwise;
}

// --- to messages --------------------------------------------------------------------------------

template <size_t kN>
void CopyOut(const std::array<std::byte, kN>& from, std::string* to) {
  to->assign(reinterpret_cast<const char*>(from.data()), kN);
}
template <class T, size_t kN, class U>
void CopyOut(const std::array<T, kN>& from, google::protobuf::RepeatedField<U>* to) {
  to->Reserve(static_cast<int>(kN));
  for (const T& element : from) to->Add(static_cast<U>(element));
}
template <size_t kM, size_t kN>
void CopyOut(const std::array<std::array<std::byte, kM>, kN>& from,
             google::protobuf::RepeatedPtrField<std::string>* to) {
  for (const std::array<std::byte, kM>& element : from) CopyOut(element, to->Add());
}
template <FixedLayout T, size_t kN, class Message>
void CopyOut(const std::array<T, kN>& from, google::protobuf::RepeatedPtrField<Message>* to) {
  for (const T& element : from) element.CopyTo(to->Add());
}

// --- from messages ------------------------------------------------------------------------------

// Copies one field after the other into a struct of zeros; keeps the first error.
class LayoutFiller {
 public:
  // `record`: all of its bytes become 0.
  template <FixedLayout T>
  explicit LayoutFiller(T* record) : message_(T::kLayoutName) {
    std::memset(static_cast<void*>(record), 0, sizeof(T));
  }

  template <size_t kN>
  void Copy(std::string_view field, std::string_view from, std::array<std::byte, kN>* to) {
    if (Fits(field, from.size(), kN, " bytes")) std::memcpy(to->data(), from.data(), from.size());
  }
  template <class U, class T, size_t kN>
  void Copy(std::string_view field, const google::protobuf::RepeatedField<U>& from,
            std::array<T, kN>* to) {
    if (!Fits(field, static_cast<size_t>(from.size()), kN, " elements")) return;
    for (int i = 0; i < from.size(); ++i) (*to)[static_cast<size_t>(i)] = static_cast<T>(from[i]);
  }
  template <size_t kM, size_t kN>
  void Copy(std::string_view field, const google::protobuf::RepeatedPtrField<std::string>& from,
            std::array<std::array<std::byte, kM>, kN>* to) {
    CopyEach(field, from, to);
  }
  template <class Message, FixedLayout T, size_t kN>
  void Copy(std::string_view field, const google::protobuf::RepeatedPtrField<Message>& from,
            std::array<T, kN>* to) {
    CopyEach(field, from, to);
  }
  template <FixedLayout T>
  void Copy(std::string_view, const typename T::Message& from, T* to) {
    absl::Status copied = to->CopyFrom(from);
    if (status_.ok()) status_ = std::move(copied);
  }

  absl::Status status() { return std::move(status_); }

 private:
  template <class From, class To>
  void CopyEach(std::string_view field, const From& from, To* to) {
    if (!Fits(field, static_cast<size_t>(from.size()), to->size(), " elements")) return;
    for (int i = 0; i < from.size(); ++i) Copy(field, from[i], &(*to)[static_cast<size_t>(i)]);
  }
  bool Fits(std::string_view field, size_t size, size_t room, std::string_view what) {
    if (size <= room) return true;
    if (status_.ok()) status_ = TooLong(message_, field, size, room, what);
    return false;
  }
  static absl::Status TooLong(std::string_view message, std::string_view field, size_t size,
                              size_t room, std::string_view what);

  const std::string_view message_;
  absl::Status status_;
};

// --- for code that does not know the type -------------------------------------------------------

absl::Status CannotParse(std::string_view message, size_t bytes);

template <FixedLayout T>
std::string LayoutToProtobuf(const void* from) {
  const auto record = std::make_unique<T>();  // may be too large for a stack
  std::memcpy(static_cast<void*>(record.get()), from, sizeof(T));
  typename T::Message message;
  record->CopyTo(&message);
  return message.SerializeAsString();
}

template <FixedLayout T>
absl::Status LayoutFromProtobuf(std::string_view encoded, void* to) {
  typename T::Message message;
  if (!message.ParsePartialFromArray(encoded.data(), static_cast<int>(encoded.size())) ||
      !message.IsInitialized()) {
    return CannotParse(T::kLayoutName, encoded.size());
  }
  return static_cast<T*>(to)->CopyFrom(message);
}

template <FixedLayout T>
inline constexpr LayoutType kLayoutType = {T::kLayoutName, T::kLayoutHash, sizeof(T),
                                           &LayoutToProtobuf<T>, &LayoutFromProtobuf<T>};

}  // namespace weft::internal
