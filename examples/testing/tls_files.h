// Certificates for the programs that a test runs, as `weft cert` makes them.
//
// Threads:   one thread at a time.
// Lifetime:  the files stay until the test's folder is removed.
// Errors:    what can't be done fails the test.
#pragma once

#include <string>
#include <vector>

#include "transport/certificate_authority.h"

namespace examples {

class TlsFiles {
 public:
  TlsFiles();

  // The flags of a program that shows a new certificate for `name` and localhost, and trusts all of
  // this object's.
  std::vector<std::string> FlagsOf(const std::string& name) const;
  // The flags of one that shows none.
  std::vector<std::string> FlagsOfNobody() const;

 private:
  const std::string folder_;
  const weft::CertificateAuthority authority_;
};

// `argv` and the flags behind it.
std::vector<std::string> With(std::vector<std::string> argv, const std::vector<std::string>& flags);

}  // namespace examples
