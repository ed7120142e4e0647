// Memory of secrets: keys, what keys are made of, and texts with keys in them. It is wiped when it
// goes, so that no later use of the memory, no core file and no hostile read of it finds them.
//
// Wiped is what these types hold, and every copy of theirs. What is not: registers, and what a
// function has put on its stack by the way; the system's copies (pages that were swapped out); a
// std::string that a program makes of them.
//
// Threads: as any value. Errors: none.
#pragma once

#include <string.h>  // explicit_bzero

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace weft {

// In a way that no compiler leaves out.
inline void Wipe(std::span<std::byte> bytes) { explicit_bzero(bytes.data(), bytes.size()); }

// All of the text's memory, what it had been before it became shorter as well. It is empty then.
inline void Wipe(std::string* text) {
  text->resize(text->capacity());
  explicit_bzero(text->data(), text->size());
  text->clear();
}

// `size` bytes, as std::array; zeros at first.
template <size_t kSize>
class SecretBytes {
 public:
  SecretBytes() = default;
  // The first ones; the rest are zeros. REQUIRES: bytes.size() <= kSize.
  explicit SecretBytes(std::span<const std::byte> bytes) {
    std::copy(bytes.begin(), bytes.end(), bytes_);
  }
  SecretBytes(const SecretBytes&) = default;
  SecretBytes& operator=(const SecretBytes&) = default;
  ~SecretBytes() { Wipe(bytes_); }

  static constexpr size_t size() { return kSize; }
  std::byte* data() { return bytes_; }
  const std::byte* data() const { return bytes_; }
  std::byte* begin() { return bytes_; }
  std::byte* end() { return bytes_ + kSize; }
  const std::byte* begin() const { return bytes_; }
  const std::byte* end() const { return bytes_ + kSize; }
  void fill(std::byte value) { std::fill(begin(), end(), value); }
  std::byte& operator[](size_t at) { return bytes_[at]; }
  const std::byte& operator[](size_t at) const { return bytes_[at]; }

  // Takes as long as it takes to find the first difference: not for what a peer has sent.
  friend bool operator==(const SecretBytes&, const SecretBytes&) = default;

 private:
  std::byte bytes_[kSize] = {};
};

// A text, for as long as it is needed. Takes over the memory of the one that it is made of.
class SecretText {
 public:
  SecretText(std::string&& text) : text_(std::move(text)) {  // NOLINT: it is the text
    Wipe(&text);                                             // a short one was copied
  }
  SecretText(const SecretText&) = delete;
  SecretText& operator=(const SecretText&) = delete;
  ~SecretText() { Wipe(&text_); }

  const std::string& operator*() const { return text_; }
  const std::string* operator->() const { return &text_; }

 private:
  std::string text_;
};

}  // namespace weft
