// Two threads write one integer: what the thread sanitizer must report.
#include <thread>

int main() {
  int shared = 0;
  std::thread one([&] { ++shared; });
  std::thread two([&] { ++shared; });
  one.join();
  two.join();
  return shared == 99 ? 1 : 0;
}
