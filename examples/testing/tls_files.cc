#include "examples/testing/tls_files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <utility>

namespace examples {
namespace {

constexpr int64_t kDayS = 86'400;  // longer than any test

std::string NewFolder() {
  std::string path = testing::TempDir() + "/tls_XXXXXX";
  EXPECT_NE(::mkdtemp(path.data()), nullptr) << path;
  return path;
}

weft::CertificateAuthority NewAuthority() {
  auto authority = weft::CertificateAuthority::Create("an authority for tests", kDayS);
  EXPECT_TRUE(authority.ok()) << authority.status();
  return *std::move(authority);
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  EXPECT_TRUE(file.flush().good()) << path;
}

}  // namespace

TlsFiles::TlsFiles() : folder_(NewFolder()), authority_(NewAuthority()) {
  Write(folder_ + "/ca.pem", authority_.pem().certificate_pem);
}

std::vector<std::string> TlsFiles::FlagsOf(const std::string& name) const {
  const auto made = authority_.Sign({.common_name = name,
                                     .dns_names = {name, "localhost"},
                                     .addresses = {"127.0.0.1", "::1"},
                                     .valid_until_s = kDayS});
  EXPECT_TRUE(made.ok()) << made.status();
  const std::string path = folder_ + "/" + name;
  Write(path + ".pem", made->certificate_pem);
  Write(path + ".key", made->key_pem);
  return With({"--tls-certificate=" + path + ".pem", "--tls-key=" + path + ".key"},
              FlagsOfNobody());
}

std::vector<std::string> TlsFiles::FlagsOfNobody() const {
  return {"--tls-roots=" + folder_ + "/ca.pem"};
}

std::vector<std::string> With(std::vector<std::string> argv,
                              const std::vector<std::string>& flags) {
  argv.insert(argv.end(), flags.begin(), flags.end());
  return argv;
}

}  // namespace examples
