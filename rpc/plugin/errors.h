// What is wrong with a .proto file, in the order found.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

#include "rpc/plugin/names.h"

namespace weft::plugin {

class Errors {
 public:
  // Adds "line N: NAME: what".
  template <class D>
  void Add(const D& where, const std::string& what) {
    google::protobuf::SourceLocation location;
    if (!text_.empty()) text_ += "\n";
    if (where.GetSourceLocation(&location)) {
      text_ += "line " + std::to_string(location.start_line + 1) + ": ";
    }
    text_ += Text(where.full_name()) + ": " + what;
  }
  void Append(const Errors& others) {
    if (!text_.empty() && !others.empty()) text_ += "\n";
    text_ += others.text_;
  }
  bool empty() const { return text_.empty(); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace weft::plugin
