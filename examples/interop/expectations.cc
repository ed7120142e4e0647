#include "examples/interop/expectations.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace interop {
namespace {

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text), "\"");
}

std::string Words(const absl::Status& status) {
  if (status.ok()) return "OK";
  return absl::StrCat(absl::StatusCodeToString(status.code()), " ", Quoted(status.message()));
}

}  // namespace

void Expectations::Fail(const std::string& what, const std::string& expected,
                        const std::string& came) {
  failures_.push_back(absl::StrCat(what, ": expected ", expected, ", came ", came));
}

void Expectations::Number(const std::string& what, uint64_t expected, uint64_t came) {
  if (came != expected) Fail(what, absl::StrCat(expected), absl::StrCat(came));
}

void Expectations::Text(const std::string& what, const std::string& expected,
                        const std::string& came) {
  if (came != expected) Fail(what, Quoted(expected), Quoted(came));
}

void Expectations::Zeros(const std::string& what, uint64_t bytes, const std::string& came) {
  Number(absl::StrCat("bytes of ", what), bytes, came.size());
  const auto zeros = std::count(came.begin(), came.end(), '\0');
  Number(absl::StrCat("zeros in ", what), came.size(), static_cast<uint64_t>(zeros));
}

void Expectations::Ok(const std::string& what, const absl::Status& came) {
  Status(what, absl::OkStatus(), came);
}

void Expectations::Code(const std::string& what, absl::StatusCode expected,
                        const absl::Status& came) {
  if (came.code() != expected) Fail(what, absl::StatusCodeToString(expected), Words(came));
}

void Expectations::Status(const std::string& what, const absl::Status& expected,
                          const absl::Status& came) {
  if (came.code() != expected.code() || came.message() != expected.message()) {
    Fail(what, Words(expected), Words(came));
  }
}

}  // namespace interop
