// Where the members of a fixed-layout message lie (weft/fixed_layout.h says what becomes of which
// field), and the hash by which two sides know that they mean the same.
//
// The hash is FNV-1a (64 bits) of a text: for each message
//
//   NAME{OFFSET FIELD TYPE;...}BYTES
//
// with the full name, the members in order, and sizes in decimal. TYPE is u32, i32, u64, i64, f32,
// f64, bool, bytesN; enum:NAME; NAME#HASH (16 hexadecimal digits) of a nested message. "*N" follows
// for N elements, " sequence" for the sequence word. Padding and checksum are not named: offsets
// and size tell. For example
//
//   kv.Bucket{0 version u64 sequence;8 keys u64*4;40 tag bytes5;45 used bool;}56
//
// Threads: pure functions. REQUIRES: CheckLayouts() has found nothing (layout_rules.h).
#pragma once

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace weft::plugin {

// Bounds weft/fixed_layout.h's kMaxFixedLayoutBytes.
inline constexpr uint64_t kMaxLayoutBytes = uint64_t{1} << 20;

struct LayoutMember {
  const google::protobuf::FieldDescriptor* field = nullptr;  // null: padding, or the checksum
  std::string name;                                          // in C++
  std::string type;                                          // in C++
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct Layout {
  std::vector<LayoutMember> members;
  uint64_t bytes = 0;
  uint64_t alignment = 1;
  bool checked = false;  // has a sequence word, and so a checksum
};

bool HasFixedLayout(const google::protobuf::Descriptor& message);
bool IsSequence(const google::protobuf::FieldDescriptor& field);

Layout LayOut(const google::protobuf::Descriptor& message);
std::string LayoutText(const google::protobuf::Descriptor& message);
uint64_t LayoutHash(const google::protobuf::Descriptor& message);

// "BucketLayout" of message Bucket, "Outer_InnerLayout" of a nested one.
std::string LayoutName(const google::protobuf::Descriptor& message);

// "::kv::BucketLayout".
std::string QualifiedLayoutName(const google::protobuf::Descriptor& message);

// Whether request or reply of a method has a fixed layout; and of any method of a service.
bool HasLayouts(const google::protobuf::MethodDescriptor& method);
bool HasLayouts(const google::protobuf::ServiceDescriptor& service);

}  // namespace weft::plugin
