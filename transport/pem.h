// PEM texts, and OpenSSL's objects that are made of them.
//
// Threads: plain values. Lifetime: a BIO of OpenPem() borrows its text.
#pragma once

#include <openssl/bio.h>

#include <memory>
#include <string>

namespace weft {

// Deletes one of OpenSSL's objects by the function that it has for that.
template <auto kFree>
struct Freer {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using BioPtr = std::unique_ptr<BIO, Freer<BIO_free>>;

inline BioPtr OpenPem(const std::string& pem) {
  return BioPtr(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// OpenSSL would ask at the terminal for the password of a key.
inline int NoPassword(char*, int, int, void*) { return -1; }

}  // namespace weft
