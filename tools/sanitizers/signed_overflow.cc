// Adds past the largest int: what the undefined-behavior sanitizer must report.
#include <limits>

int main(int argc, char**) {
  int largest = std::numeric_limits<int>::max();
  largest += argc;
  return largest == 99 ? 1 : 0;
}
