// A callable that is moved, not copied, and that lives inside the object when it fits.
//
// std::function copies its callable and allocates beyond 16 bytes; completions and handlers are
// passed on exactly once and carry a few pointers. With the default of 48 inline bytes a Function
// is one cache line, and calling it is one indirect call.
//
//   Function<void(absl::Status)> done = [call](absl::Status status) { ... };
//   static_assert(Function<void(absl::Status)>::FitsInline<decltype(lambda)>());
//
// A callable is kept inline if its size is at most kInlineBytes, its alignment at most that of
// std::max_align_t, and its move constructor noexcept; any other one costs one heap allocation at
// construction, and none when moved.
//
// Threads:   as the callable; the object itself by one thread at a time.
// Lifetime:  the callable is destroyed with the Function, or when another value is assigned.
// Errors:    calling an empty Function is a bug of the caller, and aborts in debug builds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <new>
#include <type_traits>
#include <utility>

#include "core/check.h"

namespace weft {

template <class Sig, std::size_t kInlineBytes = 48>
class Function;

template <class R, class... Args, std::size_t kInlineBytes>
class Function<R(Args...), kInlineBytes> {
 public:
  template <class F>
  static constexpr bool FitsInline() {
    return sizeof(F) <= kInlineBytes && alignof(F) <= alignof(std::max_align_t) &&
           std::is_nothrow_move_constructible_v<F>;
  }

  Function() = default;
  Function(std::nullptr_t) {}  // NOLINT: implicit, like every callable wrapper

  template <class F, class Callable = std::decay_t<F>>
  requires(!std::is_same_v<Callable, Function> && std::is_invocable_r_v<R, Callable&, Args...>)
      Function(F&& callable) {  // NOLINT: implicit, so that a lambda can be passed as it is
    using Given = std::remove_cvref_t<F>;  // Not decayed: a function itself is never null.
    if constexpr (std::is_pointer_v<Given> || std::is_member_pointer_v<Given>) {
      if (callable == nullptr) return;
    }
    if constexpr (FitsInline<Callable>()) {
      ::new (static_cast<void*>(storage_)) Callable(std::forward<F>(callable));
      Install<Inline<Callable>>();
    } else {
      auto* on_heap = new Callable(std::forward<F>(callable));
      ::new (static_cast<void*>(storage_)) Callable*(on_heap);
      Install<OnHeap<Callable>>();
    }
  }

  Function(Function&& other) noexcept { MoveFrom(other); }
  Function& operator=(Function&& other) noexcept {
    if (this != &other) {
      Reset();
      MoveFrom(other);
    }
    return *this;
  }
  Function& operator=(std::nullptr_t) noexcept {
    Reset();
    return *this;
  }
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;
  ~Function() { Reset(); }

  // The same as an assignment, for an object that is empty already.
  // REQUIRES: empty; `other` is not this.
  void TakeFrom(Function& other) noexcept {
    // Ours: it is called for what was just emptied, or made
    WEFT_DCHECK(invoke_ == nullptr && manage_ == nullptr && this != &other);
    MoveFrom(other);
  }

  explicit operator bool() const { return invoke_ != nullptr; }

  // REQUIRES: not empty.
  R operator()(Args... args) {
    WEFT_DCHECK(invoke_ != nullptr);  // Ours: empty ones are looked for before
    return invoke_(storage_, std::forward<Args>(args)...);
  }

 private:
  // Moves the callable from `from` to `to`, or destroys it when `to` is nullptr.
  using Manage = void (*)(std::byte* from, std::byte* to);
  using Invoke = R (*)(std::byte*, Args&&...);

  static_assert(kInlineBytes >= sizeof(void*), "the heap fallback keeps a pointer inline");

  // Whole words.
  static constexpr std::size_t kStorageBytes = (kInlineBytes + 7) / 8 * 8;

  template <class Callable>
  struct Inline {
    // Copying the bytes is moving, and nothing needs to be destroyed.
    static constexpr bool kTrivial =
        std::is_trivially_copyable_v<Callable> && std::is_trivially_destructible_v<Callable>;

    static Callable& Get(std::byte* storage) {
      return *std::launder(reinterpret_cast<Callable*>(storage));
    }
    static void Manage(std::byte* from, std::byte* to) {
      if (to != nullptr) ::new (static_cast<void*>(to)) Callable(std::move(Get(from)));
      Get(from).~Callable();
    }
  };

  template <class Callable>
  struct OnHeap {
    static constexpr bool kTrivial = false;

    static Callable*& Pointer(std::byte* storage) {
      return *std::launder(reinterpret_cast<Callable**>(storage));
    }
    static Callable& Get(std::byte* storage) { return *Pointer(storage); }
    static void Manage(std::byte* from, std::byte* to) {
      if (to != nullptr) {
        ::new (static_cast<void*>(to)) Callable*(Pointer(from));
      } else {
        delete Pointer(from);
      }
    }
  };

  template <class Holder>
  static R InvokeHeld(std::byte* storage, Args&&... args) {
    if constexpr (std::is_void_v<R>) {
      std::invoke(Holder::Get(storage), std::forward<Args>(args)...);
    } else {
      return std::invoke(Holder::Get(storage), std::forward<Args>(args)...);
    }
  }

  template <class Holder>
  void Install() {
    invoke_ = &InvokeHeld<Holder>;
    manage_ = Holder::kTrivial ? nullptr : &Holder::Manage;
  }

  // All words, whatever the callable's size: a constant number of moves. Word by word, because the
  // callable was most likely written a moment ago, in words: a wider load would have to wait until
  // they have left the store buffer (9 ns instead of 4 ns for the life of a 32-byte callable). The
  // empty asm keeps the compiler from joining them. GCC sees that a small callable leaves words
  // unwritten; nobody reads those.
  static void CopyWords(std::byte* to, const std::byte* from) noexcept {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC unroll 8
#endif
    for (std::size_t i = 0; i < kStorageBytes; i += sizeof(uint64_t)) {
      uint64_t word;
      std::memcpy(&word, from + i, sizeof(word));
      asm("" : "+r"(word));
      std::memcpy(to + i, &word, sizeof(word));
    }
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
  }

  // REQUIRES: empty.
  void MoveFrom(Function& other) noexcept {
    if (other.manage_ != nullptr) {
      other.manage_(other.storage_, storage_);
      manage_ = std::exchange(other.manage_, nullptr);
    } else {
      CopyWords(storage_, other.storage_);
    }
    invoke_ = std::exchange(other.invoke_, nullptr);
  }

  void Reset() noexcept {
    invoke_ = nullptr;
    if (Manage manage = std::exchange(manage_, nullptr)) manage(storage_, nullptr);
  }

  alignas(std::max_align_t) std::byte storage_[kStorageBytes];
  Invoke invoke_ = nullptr;
  Manage manage_ = nullptr;  // nullptr: copy the bytes, destroy nothing
};

}  // namespace weft
