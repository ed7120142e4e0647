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
#include <sstream>
#include <string>
#include <string_view>

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

TEST_F(GeneratorTest, OutputDependsOnTheFileAlone) {
  MemoryOutput first, second;
  std::string error;
  const std::string name = std::string(kFolder) + "kv.proto";
  Sources other;
  ASSERT_TRUE(Generator().Generate(sources_.Import(name), "", &first, &error));
  ASSERT_TRUE(Generator().Generate(other.Import(name), "", &second, &error));
  EXPECT_EQ(first.files, second.files);
}

// --- errors --------------------------------------------------------------------------------------

std::string File(const std::string& body) {
  return "syntax = 'proto3';\npackage a.b;\nmessage M { message Inner {} }\n" + body;
}

TEST_F(GeneratorTest, RefusesStreaming) {
  EXPECT_EQ(ErrorOf(File("service S {\n"
                         "  rpc Up(stream M) returns (M);\n"
                         "  rpc Plain(M) returns (M);\n"
                         "  rpc Down(M) returns (stream M);\n"
                         "}")),
            "line 5: a.b.S.Up: streaming is not supported yet: method Up\n"
            "line 7: a.b.S.Down: streaming is not supported yet: method Down");
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
