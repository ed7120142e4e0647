// What protoc-gen-weft writes, against golden files, and what it refuses.
//
// After a wanted change of the output:
//   bazel run //rpc/plugin:generator_test -- --update_golden=$PWD/rpc/plugin/testdata
#include "rpc/plugin/generator.h"

#include <google/protobuf/compiler/importer.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "rpc/plugin/layout.h"
#include "rpc/plugin/names.h"

namespace weft::plugin {
namespace {

namespace pb = google::protobuf;

constexpr std::string_view kFolder = "rpc/plugin/testdata/";
std::string& UpdateFolder() {
  static std::string folder;
  return folder;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class MemoryOutput final : public pb::compiler::GeneratorContext {
 public:
  pb::io::ZeroCopyOutputStream* Open(const std::string& name) override {
    return new pb::io::StringOutputStream(&files[name]);
  }
  std::map<std::string, std::string> files;
};

// .proto files from memory first, then from the workspace and from where protobuf is installed.
class Sources final : public pb::compiler::SourceTree, pb::compiler::MultiFileErrorCollector {
 public:
  Sources() : importer_(this, this) {
    disk_.MapPath("", ".");
    disk_.MapPath("", "/usr/include");
    disk_.MapPath("", "external/com_google_protobuf/include");
  }

  const pb::FileDescriptor* Import(const std::string& name) { return importer_.Import(name); }
  const pb::FileDescriptor* Parse(const std::string& text) {
    memory_["test.proto"] = text;
    return Import("test.proto");
  }

  pb::io::ZeroCopyInputStream* Open(const std::string& name) override {
    const auto found = memory_.find(name);
    if (found == memory_.end()) return disk_.Open(name);
    return new pb::io::ArrayInputStream(found->second.data(),
                                        static_cast<int>(found->second.size()));
  }

 private:
  void AddError(const std::string& file, int line, int, const std::string& message) override {
    ADD_FAILURE() << file << ":" << line << ": " << message;
  }

  std::map<std::string, std::string> memory_;
  pb::compiler::DiskSourceTree disk_;
  pb::compiler::Importer importer_;
};

class GeneratorTest : public testing::Test {
 protected:
  std::string ErrorOf(const std::string& text, const std::string& parameter = "") {
    MemoryOutput output;
    std::string error;
    Sources sources;
    const pb::FileDescriptor* file = sources.Parse(text);
    if (file == nullptr) return "does not parse";
    const bool done = Generator().Generate(file, parameter, &output, &error);
    EXPECT_EQ(done, error.empty());
    EXPECT_EQ(output.files.empty(), !error.empty()) << "files are written exactly without errors";
    return error;
  }

  void ExpectGolden(const std::string& name) {
    MemoryOutput output;
    std::string error;
    const pb::FileDescriptor* file = sources_.Import(std::string(kFolder) + name);
    ASSERT_NE(file, nullptr);
    ASSERT_TRUE(Generator().Generate(file, "", &output, &error)) << error;
    ASSERT_EQ(output.files.size(), 2u);
    for (const auto& [path, text] : output.files) {
      const std::string golden = path.substr(kFolder.size()) + ".golden";
      if (!UpdateFolder().empty()) std::ofstream(UpdateFolder() + "/" + golden) << text;
      EXPECT_EQ(text, ReadFile(std::string(kFolder) + golden)) << golden;
    }
  }

  Sources sources_;
};

TEST_F(GeneratorTest, WritesStubsAndServices) { ExpectGolden("kv.proto"); }

TEST_F(GeneratorTest, NamesNestedAndImportedTypesAsProtocDoes) { ExpectGolden("nested.proto"); }

TEST_F(GeneratorTest, WritesIntoTheGlobalNamespaceWithoutAPackage) {
  ExpectGolden("no_package.proto");
}

TEST_F(GeneratorTest, WritesFilesEvenWithoutServices) { ExpectGolden("no_services.proto"); }

TEST_F(GeneratorTest, WritesStructsOfFixedLayouts) { ExpectGolden("layouts.proto"); }

TEST_F(GeneratorTest, WritesStructsWithClosedEnums) { ExpectGolden("layouts_proto2.proto"); }

TEST_F(GeneratorTest, WritesSecondFormsOfMethodsWithFixedLayouts) {
  ExpectGolden("layout_calls.proto");
}

TEST_F(GeneratorTest, OutputDependsOnTheFileAlone) {
  MemoryOutput first, second;
  std::string error;
  const std::string name = std::string(kFolder) + "kv.proto";
  Sources other;
  ASSERT_TRUE(Generator().Generate(sources_.Import(name), "", &first, &error));
  ASSERT_TRUE(Generator().Generate(other.Import(name), "", &second, &error));
  EXPECT_EQ(first.files, second.files);
}

TEST_F(GeneratorTest, WritesStreams) { ExpectGolden("streams.proto"); }

TEST_F(GeneratorTest, WritesOneWayMethods) { ExpectGolden("one_way.proto"); }

// --- errors --------------------------------------------------------------------------------------

std::string File(const std::string& body) {
  return "syntax = 'proto3';\npackage a.b;\nmessage M { message Inner {} }\n" + body;
}

TEST_F(GeneratorTest, RefusesStreamsOfFixedLayouts) {
  EXPECT_EQ(ErrorOf("syntax = 'proto3';\n"
                    "package a.b;\n"
                    "import 'weft/memory.proto';\n"
                    "import 'weft/options.proto';\n"
                    "message M {}\n"
                    "message Lent { Part part = 1; }\n"
                    "message Part { weft.Bulk data = 1; Part next = 2; }\n"
                    "message Fixed { option (weft.fixed_layout) = true; uint64 x = 1; }\n"
                    "service S {\n"
                    "  rpc Up(stream Lent) returns (M);\n"
                    "  rpc Down(M) returns (stream Fixed);\n"
                    "}"),
            "line 11: a.b.S.Down: messages of streams travel as protobuf: a.b.Fixed has a fixed "
            "layout; wrap it in a message that has none");
}

TEST_F(GeneratorTest, RefusesOneWayMethodsThatWantMore) {
  EXPECT_EQ(ErrorOf("syntax = 'proto3';\n"
                    "package a.b;\n"
                    "import 'weft/memory.proto';\n"
                    "import 'weft/options.proto';\n"
                    "message M {}\n"
                    "message Full { uint64 x = 1; weft.Bulk data = 2; }\n"
                    "service S {\n"
                    "  rpc Good(M) returns (M) { option (weft.one_way) = true; }\n"
                    "  rpc Up(stream M) returns (M) { option (weft.one_way) = true; }\n"
                    "  rpc Down(M) returns (stream M) { option (weft.one_way) = true; }\n"
                    "  rpc Answer(M) returns (Full) { option (weft.one_way) = true; }\n"
                    "  rpc Lend(Full) returns (M) { option (weft.one_way) = true; }\n"
                    "  rpc Two(Full) returns (Full) { option (weft.one_way) = false; }\n"
                    "}"),
            "line 9: a.b.S.Up: a one-way method takes one message at a time: remove 'stream', or "
            "the option (weft.one_way)\n"
            "line 10: a.b.S.Down: a one-way method takes one message at a time: remove 'stream', "
            "or the option (weft.one_way)\n"
            "line 11: a.b.S.Answer: nobody answers a one-way message: return "
            "google.protobuf.Empty, or another message without fields, instead of a.b.Full\n"
            "line 12: a.b.S.Lend: a one-way message lends no memory: a.b.Full has a weft.Bulk");
}

TEST_F(GeneratorTest, RefusesKeywordsAsMethodNames) {
  EXPECT_EQ(ErrorOf(File("service S { rpc delete(M) returns (M); }")),
            "line 4: a.b.S.delete: 'delete' is a C++ keyword; rename the method");
}

TEST_F(GeneratorTest, RefusesKeywordsAsServiceNames) {
  EXPECT_EQ(ErrorOf(File("service class {}")),
            "line 4: a.b.class: 'class' is a C++ keyword; rename the service");
}

TEST_F(GeneratorTest, RefusesKeywordsInPackages) {
  EXPECT_EQ(ErrorOf("syntax = 'proto3';\npackage a.namespace.b;\nservice S {}"),
            "line 3: a.namespace.b.S: 'namespace' in the package name is a C++ keyword; rename the "
            "package");
}

TEST_F(GeneratorTest, RefusesNamesOfGeneratedClasses) {
  EXPECT_EQ(ErrorOf(File("service Stub {}")),
            "line 4: a.b.Stub: 'Stub' is a name in the generated class; rename the service");
  EXPECT_EQ(ErrorOf(File("service LayoutService {}")),
            "line 4: a.b.LayoutService: 'LayoutService' is a name in the generated class; rename "
            "the service");
  EXPECT_EQ(ErrorOf(File("service S { rpc Service(M) returns (M); }")),
            "line 4: a.b.S.Service: 'Service' is a name in the generated classes; rename the "
            "method");
}

TEST_F(GeneratorTest, RefusesAMethodNamedAsAnothersAsynchronousForm) {
  EXPECT_EQ(ErrorOf(File("service S {\n"
                         "  rpc Get(M) returns (M);\n"
                         "  rpc StartGet(M) returns (M);\n"
                         "}")),
            "line 6: a.b.S.StartGet: clashes with the generated asynchronous form of method Get; "
            "rename one of them");
}

TEST_F(GeneratorTest, TakesStartAsAName) {
  EXPECT_EQ(ErrorOf(File("service S { rpc Start(M) returns (M); }")), "");
}

TEST_F(GeneratorTest, RefusesAServiceNamedAsANestedTypesClass) {
  EXPECT_EQ(ErrorOf(File("service M_Inner {}")),
            "line 4: a.b.M_Inner: protoc gives the same C++ name to a nested type; rename the "
            "service");
}

TEST_F(GeneratorTest, RefusesProtocsOwnServices) {
  EXPECT_EQ(ErrorOf(File("option cc_generic_services = true; service S {}")),
            "line 4: a.b.S: cc_generic_services gives the same name to protoc's own class; remove "
            "that option");
}

TEST_F(GeneratorTest, RefusesOptions) {
  EXPECT_EQ(ErrorOf(File(""), "fast"), "unknown option 'fast': protoc-gen-weft has none");
}

// --- fixed layouts -------------------------------------------------------------------------------

// A message of fixed layout, whose fields start at line 5.
std::string Fixed(const std::string& fields, const std::string& more = "") {
  return "syntax = 'proto3'; package a; import 'weft/options.proto'; import "
         "'weft/memory.proto';\n" +
         more + "\nmessage M {\n  option (weft.fixed_layout) = true;\n" + fields + "\n}";
}

TEST_F(GeneratorTest, RefusesFieldsWithoutAFixedLayout) {
  EXPECT_EQ(ErrorOf(Fixed("string s = 1;")),
            "line 5: a.M.s: a string has no fixed layout; use bytes with [(weft.bytes) = N]");
  EXPECT_EQ(ErrorOf(Fixed("\nmap<int32, int32> m = 1;")),
            "line 6: a.M.m: a map has no fixed layout");
  EXPECT_EQ(ErrorOf(Fixed("oneof which { int32 x = 1; }")),
            "line 5: a.M.x: a oneof has no fixed layout: memory does not tell which field is set");
  EXPECT_EQ(ErrorOf(Fixed("optional int32 x = 1;")),
            "line 5: a.M.x: memory does not tell whether a field is set; remove 'optional' (in "
            "proto2: 'required')");
  EXPECT_EQ(ErrorOf(Fixed("weft.Bulk b = 1;")),
            "line 5: a.M.b: its type weft.Bulk has no fixed layout; give it option "
            "(weft.fixed_layout) = true");
}

TEST_F(GeneratorTest, RefusesFieldsOfUnknownLength) {
  EXPECT_EQ(ErrorOf(Fixed("bytes b = 1;\nrepeated int32 r = 2;")),
            "line 5: a.M.b: a bytes field needs [(weft.bytes) = N], its length\n"
            "line 6: a.M.r: a repeated field needs [(weft.count) = N], its number of elements");
  EXPECT_EQ(ErrorOf(Fixed("bytes b = 1 [(weft.bytes) = 0];")),
            "line 5: a.M.b: (weft.bytes) must be 1 to 1048576");
  EXPECT_EQ(ErrorOf(Fixed("repeated bool r = 1 [(weft.count) = 1048577];")),
            "line 5: a.M.r: (weft.count) must be 1 to 1048576");
}

TEST_F(GeneratorTest, RefusesLengthsOfWhatHasOne) {
  EXPECT_EQ(ErrorOf(Fixed("int32 x = 1 [(weft.count) = 2];")),
            "line 5: a.M.x: (weft.count) belongs to repeated fields");
  EXPECT_EQ(ErrorOf(Fixed("int32 x = 1 [(weft.bytes) = 2];")),
            "line 5: a.M.x: (weft.bytes) belongs to bytes fields");
}

TEST_F(GeneratorTest, RefusesLayoutsThatAreTooLarge) {
  EXPECT_EQ(ErrorOf(Fixed("repeated fixed64 r = 1 [(weft.count) = 131072];")), "");
  EXPECT_EQ(ErrorOf(Fixed("repeated fixed64 r = 1 [(weft.count) = 131072]; bool more = 2;")),
            "line 3: a.M: the layout has 1048584 bytes; the limit is 1048576");
}

TEST_F(GeneratorTest, RefusesEmptyLayouts) {
  EXPECT_EQ(ErrorOf(Fixed("")), "line 3: a.M: a fixed layout needs a field");
}

TEST_F(GeneratorTest, RefusesMessagesThatContainThemselves) {
  EXPECT_EQ(ErrorOf(Fixed("M again = 1;")), "line 5: a.M.again: its type a.M would contain itself");
  EXPECT_EQ(ErrorOf(Fixed("N n = 1;", "message N { option (weft.fixed_layout) = true; M m = 1; }")),
            "line 2: a.N.m: its type a.M has errors\n"
            "line 5: a.M.n: its type a.N has errors");
}

TEST_F(GeneratorTest, TakesOneSequenceWordAtTheFront) {
  EXPECT_EQ(ErrorOf(Fixed("fixed64 s = 1 [(weft.sequence) = true];")), "");
  EXPECT_EQ(ErrorOf(Fixed("bool b = 1;\nfixed64 s = 2 [(weft.sequence) = true];")),
            "line 6: a.M.s: the sequence word must be the first field");
  EXPECT_EQ(ErrorOf(Fixed("fixed32 s = 1 [(weft.sequence) = true];")),
            "line 5: a.M.s: the sequence word must be a fixed64");
  EXPECT_EQ(ErrorOf(Fixed("N n = 1;",
                          "message N { option (weft.fixed_layout) = true; fixed64 s = 1 "
                          "[(weft.sequence) = true]; }")),
            "line 5: a.M.n: its type a.N has a sequence word: only whole records can have one");
}

TEST_F(GeneratorTest, RefusesOptionsOfLayoutsElsewhere) {
  EXPECT_EQ(ErrorOf("syntax = 'proto3'; import 'weft/options.proto';\n"
                    "message P { bytes b = 1 [(weft.bytes) = 2]; }"),
            "line 2: P.b: (weft.count), (weft.bytes) and (weft.sequence) belong to messages with "
            "option (weft.fixed_layout) = true");
}

TEST_F(GeneratorTest, RefusesNamesThatAStructHasAlready) {
  EXPECT_EQ(ErrorOf(Fixed("bool kChecked = 1;\nbool padding_0_ = 2;\nbool MLayout = 3;")),
            "line 5: a.M.kChecked: 'kChecked' is a name in the generated struct; rename the field\n"
            "line 6: a.M.padding_0_: names that end in '_' are the generator's; rename the field\n"
            "line 7: a.M.MLayout: 'MLayout' is a name in the generated struct; rename the field");
  EXPECT_EQ(ErrorOf(Fixed("bool CopyTo = 1;")),
            "line 5: a.M.CopyTo: 'CopyTo' is a name in the generated struct; rename the field");
  EXPECT_EQ(ErrorOf(Fixed("bool b = 1;", "enum MLayout { ZERO = 0; }")),
            "line 3: a.M: the name of its struct, MLayout, is taken in this file; rename one of "
            "them");
}

TEST_F(GeneratorTest, Proto2RecordsHaveRequiredFields) {
  const std::string start =
      "syntax = 'proto2'; package a; import 'weft/options.proto';\n"
      "message M { option (weft.fixed_layout) = true;\n";
  EXPECT_EQ(ErrorOf(start + "required int32 x = 1; }"), "");
  EXPECT_EQ(ErrorOf(start + "optional int32 x = 1; }"),
            "line 3: a.M.x: memory does not tell whether a field is set; remove 'optional' (in "
            "proto2: 'required')");
  EXPECT_EQ(ErrorOf(start + "required int32 x = 1; extensions 10 to 20; }"),
            "line 2: a.M: extensions have no fixed layout");
}

class LayoutTest : public testing::Test {
 protected:
  std::string TextOf(const std::string& fields) {
    sources_.push_back(std::make_unique<Sources>());
    const pb::FileDescriptor* file = sources_.back()->Parse(Fixed(fields));
    return LayoutText(*file->FindMessageTypeByName("M"));
  }
  uint64_t HashOf(const std::string& fields) {
    sources_.push_back(std::make_unique<Sources>());
    const pb::FileDescriptor* file = sources_.back()->Parse(Fixed(fields));
    return LayoutHash(*file->FindMessageTypeByName("M"));
  }

  std::vector<std::unique_ptr<Sources>> sources_;
};

TEST_F(LayoutTest, TextIsAsDocumented) {
  EXPECT_EQ(TextOf("fixed64 version = 1 [(weft.sequence) = true];\n"
                   "repeated fixed64 keys = 2 [(weft.count) = 4];\n"
                   "bytes tag = 3 [(weft.bytes) = 5];\n"
                   "bool used = 4;"),
            "a.M{0 version u64 sequence;8 keys u64*4;40 tag bytes5;45 used bool;}56");
}

TEST_F(LayoutTest, HashIsFnv1aOfTheText) {
  EXPECT_EQ(TextOf("fixed32 x = 1;"), "a.M{0 x u32;}4");
  EXPECT_EQ(HashOf("fixed32 x = 1;"), 0x4DC94886998ADC2C);
}

// What a peer would misread changes the hash; what it would not, does not.
TEST_F(LayoutTest, EveryChangeChangesTheHash) {
  const char* const kLayouts[] = {
      "fixed32 x = 1; fixed32 y = 2;",
      "fixed32 y = 1; fixed32 x = 2;",   // order
      "fixed32 x = 1; fixed32 z = 2;",   // a name
      "fixed32 x = 1; sfixed32 y = 2;",  // a type
      "fixed32 x = 1; float y = 2;",
      "fixed32 x = 1; fixed64 y = 2;",
      "fixed32 x = 1; bytes y = 2 [(weft.bytes) = 4];",
      "fixed32 x = 1; repeated fixed32 y = 2 [(weft.count) = 1];",
      "fixed32 x = 1; repeated fixed32 y = 2 [(weft.count) = 2];",
      "fixed32 x = 1; fixed32 y = 2; bool more = 3;",
      "fixed32 x = 1; I y = 2; message I { option (weft.fixed_layout) = true; fixed32 a = 1; }",
      "fixed32 x = 1; I y = 2; message I { option (weft.fixed_layout) = true; fixed32 b = 1; }",
      "fixed64 x = 1; fixed32 y = 2;",
      "fixed64 x = 1 [(weft.sequence) = true]; fixed32 y = 2;",
  };
  std::set<uint64_t> hashes;
  for (const char* layout : kLayouts) hashes.insert(HashOf(layout));
  EXPECT_EQ(hashes.size(), std::size(kLayouts));
  EXPECT_EQ(HashOf("fixed32 x = 1; fixed32 y = 2;"), HashOf("fixed32 x = 7; uint32 y = 9;"));
}

TEST(KeywordTest, KnowsFirstMiddleAndLast) {
  EXPECT_TRUE(IsCppKeyword("alignas"));
  EXPECT_TRUE(IsCppKeyword("requires"));
  EXPECT_TRUE(IsCppKeyword("xor_eq"));
  EXPECT_FALSE(IsCppKeyword("Get"));
  EXPECT_FALSE(IsCppKeyword(""));
}

}  // namespace
}  // namespace weft::plugin

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kFlag = "--update_golden=";
  if (argc > 1 && std::string_view(argv[1]).starts_with(kFlag)) {
    weft::plugin::UpdateFolder() = argv[1] + kFlag.size();
  }
  return RUN_ALL_TESTS();
}
