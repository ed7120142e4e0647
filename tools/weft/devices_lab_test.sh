#!/usr/bin/env bash
# devices_lab_test.sh WEFT: what `weft devices` says of a software RDMA device, and of the ways to
# break it. For a virtual machine, whose devices it changes:
#   ./dev lab --device rxe -- tools/weft/devices_lab_test.sh bazel-bin/tools/weft/weft
#   ./dev lab --device siw -- tools/weft/devices_lab_test.sh bazel-bin/tools/weft/weft
set -euo pipefail
weft=$(readlink -f "$1")
[[ -n ${WEFT_LAB_IP:-} ]] || { echo "this is for ./dev lab: it breaks the host's network" >&2; exit 2; }

# expects WHAT EXPRESSION: a Python expression on `host`, and `verbs`: the RDMA path of $WEFT_LAB_IP
# (where there is none, of the first RDMA port).
expects() {
  seen=$("$weft" devices --json) || { echo "FAILED: $1: weft devices"; exit 1; }
  also "$@"
}

# also WHAT EXPRESSION: of what was seen last. Emulated, a start of the program takes seconds.
also() {
  python3 - "$seen" "$WEFT_LAB_IP/24" "$2" <<'PYTHON' || { echo "FAILED: $1"; exit 1; }
import json, sys
host = json.loads(sys.argv[1])
ports = [path for path in host["paths"] if path["path"] == "verbs"]
verbs = ([path for path in ports if path["address"] == sys.argv[2]] or ports or [None])[0]
if not eval(sys.argv[3]):
    print(json.dumps(verbs or host, indent=2))
    sys.exit(1)
PYTHON
  echo "ok: $1"
}

device=$(basename /sys/class/infiniband/*)
expects "a live device is used" 'verbs["used"] and verbs["place"] == 2 and verbs["state"] == "ACTIVE"'
also "libfabric adds the card" 'verbs["vendor_id"]'
case $device in
  rxe*)
    also "it is RoCE v2" 'verbs["link"] == "RoCE v2" and verbs["gid_type"] == "RoCE v2"'
    also "its MTU is what libfabric says" 'verbs["mtu_bytes"] == 1024 and not verbs["notes"]'
    WEFT_GID_INDEX=77 expects "a GID index that is empty" 'verbs["reason"].startswith("GID index 77")'
    WEFT_GID_INDEX=2 expects "a GID index of another address" '"use index 1" in verbs["reason"]'
    ;;
  siw*)
    also "it is iWARP, whatever its GID says" 'verbs["link"] == "iWARP" and not verbs["notes"]'
    (ulimit -l 64; expects "too little memory to lock, for root too" \
      'verbs["reason"].startswith("memlock 64 KiB")')
    ;;
esac
WEFT_PATHS=tcp expects "denied" 'verbs["reason"] == "denied by WEFT_PATHS=tcp"'
WEFT_DEVICES=mlx5_0 expects "another device" 'verbs["reason"].startswith("not in WEFT_DEVICES=mlx5_0")'
WEFT_SUBNETS=10.0.0.0/8 expects "another subnet" '"in no subnet" in verbs["reason"]'
FI_PROVIDER=tcp,shm expects "a libfabric without verbs" '"excluded by FI_PROVIDER" in verbs["reason"]'

(
  ulimit -l 64
  weft_as_user="$WEFT_LAB_SHARED/weft_as_user"
  printf '#!/bin/sh\nexec setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock %s "$@"\n' "$weft" \
    >"$weft_as_user"
  chmod +x "$weft_as_user"
  weft=$weft_as_user
  expects "too little memory to lock" 'verbs["reason"].startswith("memlock 64 KiB is too small")'
)

chmod 000 /dev/infiniband/uverbs0
printf '#!/bin/sh\nexec setpriv --reuid=65534 --clear-groups %s "$@"\n' "$weft" >"$WEFT_LAB_SHARED/nobody"
chmod 755 "$WEFT_LAB_SHARED/nobody"
(
  weft=$WEFT_LAB_SHARED/nobody
  expects "no permission" 'verbs["reason"].startswith("no permission to open /dev/infiniband/uverbs0")'
)
chmod 666 /dev/infiniband/uverbs0

mv /dev/infiniband/rdma_cm /dev/infiniband/elsewhere
expects "no device file" '"/dev/infiniband/rdma_cm is missing" in verbs["reason"]'
mv /dev/infiniband/elsewhere /dev/infiniband/rdma_cm

ip addr flush dev eth0 scope global
expects "no address" 'verbs["reason"].startswith("no IP address") and "dev eth0" in verbs["reason"]'
ip addr add "$WEFT_LAB_IP/24" dev eth0
expects "an address again" 'verbs["used"]'
ip link set eth0 down
expects "a port that is down" '"ip link set eth0 up" in verbs["reason"] and verbs["place"] is None'
ip link set eth0 up
rdma link delete "$device"
expects "no device" 'verbs is None and host["no_rdma"].startswith("no RDMA device")'
echo "passed on $device"
