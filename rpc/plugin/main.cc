// protoc-gen-weft: run by protoc --weft_out=DIR.
#include <google/protobuf/compiler/plugin.h>

#include "rpc/plugin/generator.h"

int main(int argc, char** argv) {
  weft::plugin::Generator generator;
  return google::protobuf::compiler::PluginMain(argc, argv, &generator);
}
