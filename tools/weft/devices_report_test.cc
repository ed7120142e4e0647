#include "tools/weft/devices_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace weft::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

HostPaths TwoPaths() {
  HostPath verbs;
  verbs.kind = PathKind::kVerbs;
  verbs.link = LinkKind::kRoceV2;
  verbs.device = "mlx5_2";
  verbs.port = 1;
  verbs.interface = "enp65s0f0";
  verbs.address = "10.2.0.3/24";
  verbs.gid = "0000:0000:0000:0000:0000:ffff:0a02:0003";
  verbs.gid_index = 3;
  verbs.gid_type = "RoCE v2";
  verbs.state = "ACTIVE";
  verbs.mtu_bytes = 4096;
  verbs.gbit_per_s = 200;
  verbs.numa_node = 0;
  verbs.driver = "mlx5_core";
  verbs.place = 1;
  verbs.reason = "usable";
  verbs.notes = {"libfabric says MTU 2048, the kernel 4096"};
  HostPath tcp;
  tcp.link = LinkKind::kIp;
  tcp.device = tcp.interface = "eth0";
  tcp.reason = "denied by WEFT_PATHS=verbs";
  HostPaths host;
  host.paths = {verbs, tcp};
  host.fabric = "libfabric 1.17, providers: tcp, verbs";
  host.memlock_bytes = uint64_t{8} << 20;
  host.wanted_lock_bytes = uint64_t{1} << 20;
  return host;
}

TEST(DevicesTable, HasARowForEachPathAndTheReasonBelow) {
  EXPECT_EQ(DevicesTable(TwoPaths()),
            "use  path   device    link     address      mtu   Gb/s  state   node\n"
            "1    verbs  mlx5_2:1  RoCE v2  10.2.0.3/24  4096  200   ACTIVE  0\n"
            "    usable\n"
            "    GID 3 0000:0000:0000:0000:0000:ffff:0a02:0003, type RoCE v2; interface enp65s0f0; "
            "driver\n"
            "    mlx5_core\n"
            "    note: libfabric says MTU 2048, the kernel 4096\n"
            "no   tcp    eth0      TCP/IP   -            -     -     -       -\n"
            "    denied by WEFT_PATHS=verbs\n"
            "\n"
            "registration limit (memlock): 8 MiB; an RDMA port takes 1 MiB at least\n"
            "libfabric 1.17, providers: tcp, verbs\n");
}

TEST(DevicesTable, SaysWhyThereIsNoRdmaAndStaysWithinAHundredColumns) {
  HostPaths host = TwoPaths();
  host.no_rdma =
      "no RDMA device: without a card, Soft-RoCE gives one for trying: modprobe rdma_rxe "
      "&& rdma link add rxe0 type rxe netdev INTERFACE";
  host.may_lock_any = true;
  std::istringstream lines(DevicesTable(host));
  std::string all;
  for (std::string line; std::getline(lines, line); all += line + "\n") {
    EXPECT_LE(line.size(), 100u) << line;
  }
  EXPECT_THAT(all, HasSubstr("no RDMA device: "));
  EXPECT_THAT(all, HasSubstr("CAP_IPC_LOCK"));
}

TEST(DevicesTable, AnUnlimitedMemlockNeedsNoRight) {
  HostPaths host = TwoPaths();
  host.may_lock_any = true;
  host.memlock_bytes = ~uint64_t{0};
  EXPECT_THAT(DevicesTable(host),
              HasSubstr("(memlock): unlimited; an RDMA port takes 1 MiB at least\n"));
}

TEST(DevicesJson, HasEveryMemberAndNullForWhatIsNotKnown) {
  const std::string json = DevicesJson(TwoPaths());
  EXPECT_THAT(json, HasSubstr(R"("path": "verbs", "link": "RoCE v2", "device": "mlx5_2", )"
                              R"("port": 1, "interface": "enp65s0f0", "address": "10.2.0.3/24", )"
                              R"("gid": "0000:0000:0000:0000:0000:ffff:0a02:0003", )"
                              R"("gid_index": 3, "gid_type": "RoCE v2", "mtu_bytes": 4096, )"
                              R"("gbit_per_s": 200, "state": "ACTIVE", "numa_node": 0, )"
                              R"("driver": "mlx5_core", "firmware": null, "vendor_id": null, )"
                              R"("device_id": null, "free_bytes": null, "used": true, )"
                              R"("place": 1, "reason": "usable", )"
                              R"("notes": ["libfabric says MTU 2048, the kernel 4096"]})"));
  EXPECT_THAT(json, HasSubstr(R"("used": false, "place": null, )"));
  EXPECT_THAT(json, HasSubstr(R"("memlock_bytes": 8388608)"));
  EXPECT_THAT(json, HasSubstr(R"("no_rdma": null)"));
}

TEST(DevicesJson, AnUnlimitedMemlockIsNull) {
  HostPaths host = TwoPaths();
  host.memlock_bytes = ~uint64_t{0};
  EXPECT_THAT(DevicesJson(host), HasSubstr(R"("memlock_bytes": null)"));
  EXPECT_THAT(DevicesJson(host), Not(HasSubstr("18446744073709551615")));
}

}  // namespace
}  // namespace weft::tools
