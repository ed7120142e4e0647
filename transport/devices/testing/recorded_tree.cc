#include "transport/devices/testing/recorded_tree.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/check.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  WEFT_CHECK(file.is_open());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// In memory: a tree has a thousand files and more.
std::string MakeRoot() {
  std::string path = "/dev/shm/weft_tree.XXXXXX";
  WEFT_CHECK(::mkdtemp(path.data()) != nullptr);
  return path;
}

// "a/{3..5}" is a/3, a/4, a/5.
std::vector<std::string> Expand(const std::string& path) {
  const size_t open = path.find('{');
  if (open == std::string::npos) return {path};
  const size_t dots = path.find("..", open);
  const size_t close = path.find('}', open);
  WEFT_CHECK(dots != std::string::npos && close != std::string::npos);
  std::vector<std::string> paths;
  const int last = std::stoi(path.substr(dots + 2));
  for (int i = std::stoi(path.substr(open + 1)); i <= last; ++i) {
    paths.push_back(path.substr(0, open) + std::to_string(i) + path.substr(close + 1));
  }
  return paths;
}

}  // namespace

RecordedTree::RecordedTree(const std::string& name) : root_(MakeRoot()) {
  sources_.sysfs = root_ + "/sys";
  sources_.configfs = sources_.sysfs + "/kernel/config";
  sources_.dev = root_ + "/dev";
  fs::create_directories(sources_.sysfs + "/class");
  Add(ReadAll("transport/devices/testdata/" + name + ".tree"));
}

RecordedTree::~RecordedTree() { fs::remove_all(root_); }

void RecordedTree::Add(std::string_view lines) {
  std::istringstream text{std::string(lines)};
  for (std::string line; std::getline(text, line);) AddLine(line);
  AddDeviceFiles();
}

void RecordedTree::AddLine(const std::string& line) {
  if (line.empty() || line[0] == '#') return;
  if (line[0] == '@') return AddAddress(line);
  if (line.front() == '[' && line.back() == ']') {
    folder_ = sources_.sysfs + "/" + line.substr(1, line.size() - 2) + "/";
    fs::create_directories(folder_);
    return;
  }
  const std::string below = folder_.empty() ? sources_.sysfs + "/" : folder_;
  const size_t blank = line.find(' ');
  for (const std::string& name : Expand(line.substr(0, blank))) {
    const std::string path = below + name;
    if (blank == std::string::npos || line.compare(blank, 2, " !") == 0) {
      fs::create_directories(path);
    } else if (line.compare(blank, 3, " ->") == 0) {
      fs::create_directories(fs::path(path).parent_path());
      fs::create_symlink(line.substr(blank + 4), path);
    } else {
      WEFT_CHECK(line.compare(blank, 2, " =") == 0);
      AddFile(path, line.size() > blank + 3 ? line.substr(blank + 3) : "");
    }
  }
}

void RecordedTree::AddFile(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  if (fs::is_directory(path)) fs::remove(path);
  std::ofstream(path) << text << "\n";
}

void RecordedTree::AddAddress(const std::string& line) {
  std::istringstream words(line.substr(1));
  InterfaceAddress address;
  std::string where;
  std::string state;
  words >> address.interface >> where >> state;
  const size_t slash = where.find('/');
  WEFT_CHECK(slash != std::string::npos);
  address.host = where.substr(0, slash);
  address.prefix_bits = static_cast<uint32_t>(std::stoul(where.substr(slash + 1)));
  address.up = state != "down";
  // What ReadInterfaceAddresses() leaves out.
  if (address.interface == "lo" || address.host.rfind("fe80", 0) == 0) return;
  sources_.interfaces.push_back(std::move(address));
}

void RecordedTree::AddDeviceFiles() {
  for (const std::string folder : {"infiniband_verbs", "misc"}) {
    const fs::path all = sources_.sysfs + "/class/" + folder;
    if (!fs::exists(all)) continue;
    for (const auto& entry : fs::directory_iterator(all)) {
      if (!entry.is_directory()) continue;
      AddFile(sources_.dev + "/infiniband/" + entry.path().filename().string(), "");
    }
  }
}

void RecordedTree::Remove(const std::string& path) {
  const std::string whole = (path.rfind("dev/", 0) == 0 ? root_ : sources_.sysfs) + "/" + path;
  WEFT_CHECK(fs::remove_all(whole) > 0);
}

}  // namespace weft
