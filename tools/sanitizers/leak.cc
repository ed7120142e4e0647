// Loses a heap block: what the leak sanitizer must report.
#include <cstdlib>

void* volatile lost;

int main() {
  lost = std::malloc(77);
  lost = nullptr;
}
