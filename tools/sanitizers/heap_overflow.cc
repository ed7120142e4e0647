// Writes one byte past a heap block: what the address sanitizer must report.
int main(int argc, char**) {
  auto* block = new unsigned char[4];
  block[3 + argc] = 1;
  const auto result = block[0];
  delete[] block;
  return result == 99 ? 1 : 0;
}
