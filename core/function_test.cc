#include "core/function.h"

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace weft {
namespace {

// A callable of a given size that counts its heap allocations.
template <std::size_t kSize>
struct Sized {
  static inline int allocations = 0;

  static void* operator new(std::size_t size) {
    ++allocations;
    return ::operator new(size);
  }
  static void operator delete(void* memory) { ::operator delete(memory); }

  char operator()() const { return content[kSize - 1]; }

  std::array<char, kSize> content = {};
};

TEST(Function, CallsWithArgumentsAndResult) {
  Function<int(int, const std::string&)> f = [](int a, const std::string& b) {
    return a + static_cast<int>(b.size());
  };
  EXPECT_EQ(f(2, "abc"), 5);
}

TEST(Function, IsEmptyUntilSetAndAfterMove) {
  Function<void()> f;
  EXPECT_FALSE(f);
  f = [] {};
  EXPECT_TRUE(static_cast<bool>(f));
  Function<void()> g = std::move(f);
  EXPECT_FALSE(f);  // NOLINT: the state after a move is promised
  EXPECT_TRUE(static_cast<bool>(g));
  g = nullptr;
  EXPECT_FALSE(g);
}

int Twice(int n) { return 2 * n; }

TEST(Function, TakesPlainFunctions) {
  Function<int(int)> f = Twice;
  EXPECT_EQ(f(4), 8);
  f = &Twice;
  EXPECT_EQ(f(5), 10);
  int (*none)(int) = nullptr;
  f = none;
  EXPECT_FALSE(f);
}

TEST(Function, PassesMoveOnlyArgumentsAndResultsThrough) {
  Function<std::unique_ptr<int>(std::unique_ptr<int>)> f = [](std::unique_ptr<int> p) {
    ++*p;
    return p;
  };
  EXPECT_EQ(*f(std::make_unique<int>(1)), 2);
}

TEST(Function, PassesReferencesAsReferences) {
  Function<void(int&)> f = [](int& n) { n = 9; };
  int n = 0;
  f(n);
  EXPECT_EQ(n, 9);
}

TEST(Function, DiscardsTheResultWhereNoneIsWanted) {
  Function<void()> f = [] { return 3; };
  f();
}

TEST(Function, KeepsStateBetweenCalls) {
  Function<int()> f = [n = 0]() mutable { return ++n; };
  f();
  Function<int()> g = std::move(f);
  EXPECT_EQ(g(), 2);
}

TEST(Function, FitsOneCacheLine) { static_assert(sizeof(Function<void()>) == 64); }

TEST(Function, SmallCallablesNeverTouchTheHeap) {
  static_assert(Function<char()>::FitsInline<Sized<48>>());
  Sized<48> small;
  small.content[47] = 'x';
  Function<char()> f = small;
  Function<char()> g = std::move(f);
  f = std::move(g);
  EXPECT_EQ(f(), 'x');
  EXPECT_EQ(Sized<48>::allocations, 0);
}

TEST(Function, LargeCallablesAreAllocatedOnceAndNotWhenMoved) {
  static_assert(!Function<char()>::FitsInline<Sized<49>>());
  Sized<49> large;
  large.content[48] = 'x';
  Function<char()> f = large;
  Function<char()> g = std::move(f);
  EXPECT_EQ(g(), 'x');
  EXPECT_EQ(Sized<49>::allocations, 1);
}

TEST(Function, InlineBytesAreTheCallersChoice) {
  static_assert(Function<char(), 100>::FitsInline<Sized<100>>());
  static_assert(!Function<char(), 8>::FitsInline<Sized<9>>());
}

TEST(Function, CallablesWhoseMoveMayThrowAreAllocated) {
  struct Throwing {
    Throwing() = default;
    Throwing(Throwing&&) noexcept(false) {}
    void operator()() {}
  };
  static_assert(!Function<void()>::FitsInline<Throwing>());
  Function<void()> f = Throwing();
  f();
}

// Both inline and on the heap.
template <std::size_t kSize>
void ExpectDestroyedOnce() {
  const auto watched = std::make_shared<int>(7);
  {
    Function<int()> f = [watched, padding = std::array<char, kSize>()] {
      return *watched + padding[0];
    };
    EXPECT_EQ(watched.use_count(), 2);
    Function<int()> g = std::move(f);
    EXPECT_EQ(watched.use_count(), 2);
    EXPECT_EQ(g(), 7);
    Function<int()>& alias = g;
    g = std::move(alias);
    EXPECT_EQ(g(), 7);
    f = std::move(g);
    EXPECT_EQ(watched.use_count(), 2);
    f = [] { return 0; };
    EXPECT_EQ(watched.use_count(), 1);
    f = [watched] { return 1; };
    EXPECT_EQ(watched.use_count(), 2);
  }
  EXPECT_EQ(watched.use_count(), 1);
}

TEST(Function, DestroysItsCallableExactlyOnce) {
  ExpectDestroyedOnce<1>();
  ExpectDestroyedOnce<100>();
}

// A completion handler may replace or clear the function that it is called from only after it has
// returned; but clearing it from the callable's destructor must not destroy it twice.
TEST(Function, ClearingFromTheCallablesDestructorIsHarmless) {
  Function<void()> f;
  const std::shared_ptr<void> guard(nullptr, [&f](void*) { f = nullptr; });
  auto shared = guard;
  f = [shared = std::move(shared)] {};
  f = nullptr;
  EXPECT_FALSE(f);
}

#ifndef NDEBUG
TEST(FunctionDeathTest, CallingAnEmptyOneAborts) {
  Function<void()> f;
  EXPECT_DEATH(f(), "check failed");
}
#endif

}  // namespace
}  // namespace weft
