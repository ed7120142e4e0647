// Recorded sysfs trees: one text file for a host, spread out into a folder for a test.
//
//   # Linux 6.1, a comment                   ignored, as are empty lines
//   [class/infiniband/rxe0/ports/1]          the folder of what follows, below sysfs
//   state = 4: ACTIVE                        a file with one line
//   gids/{3..1023} = 0000:...                many of them
//   gid_attrs/types/3 !                      a file that refuses to be read (becomes a folder)
//   driver -> ../../bus/pci/drivers/x        a symbolic link, which may dangle
//   device/net/eth0/                         an empty folder
//   @ eth0 192.168.77.1/24                   an address of an interface; "down" may follow
//
// testdata/record.sh writes this form on a live host. Device files are made for every uverbs and
// rdma_cm that the tree has; configfs is kernel/config in the tree.
//
// Threads: one. Lifetime: the folder goes with the object. Errors: a malformed tree aborts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport/devices/rdma_port.h"

namespace weft {

class RecordedTree {
 public:
  // testdata/NAME.tree
  explicit RecordedTree(const std::string& name);
  ~RecordedTree();
  RecordedTree(const RecordedTree&) = delete;
  RecordedTree& operator=(const RecordedTree&) = delete;

  // Adds lines of the same form; files are replaced.
  void Add(std::string_view lines);
  // Removes a file or folder below sysfs, or of the device files ("dev/infiniband/uverbs0").
  void Remove(const std::string& path);

  const RdmaSources& sources() const { return sources_; }
  std::vector<RdmaPort> Ports() const { return ReadRdmaPorts(sources_); }

 private:
  void AddLine(const std::string& line);
  void AddFile(const std::string& path, const std::string& text);
  void AddAddress(const std::string& line);
  void AddDeviceFiles();

  std::string root_;
  std::string folder_;  // of the line that is read
  RdmaSources sources_;
};

}  // namespace weft
