#!/usr/bin/env bash
# Writes what the kernel says of this host's RDMA devices, in the form that recorded_tree.h reads.
# usage: record.sh >NAME.tree       (no privileges needed; look at it before giving it away)
set -euo pipefail
shopt -s nullglob
cd /sys

# files FOLDER NAME...: its files of these names; one that refuses is "!".
files() {
  local folder=$1 name line
  shift
  for name; do
    [[ -f $folder/$name ]] || continue
    if line=$(head -n1 "$folder/$name" 2>/dev/null); then
      echo "$name = $line"
    else
      echo "$name !"
    fi
  done
}

device_of() {  # the hardware below, where there is any
  [[ -e $1/device ]] || return 0
  echo "[$1/device]"
  files "$1/device" numa_node
  [[ ! -L $1/device/driver ]] || echo "driver -> $(readlink "$1/device/driver")"
  local entry
  for entry in "$1"/device/net/* "$1"/device/infiniband/*; do echo "${entry#"$1"/device/}/"; done
}

uname -r | sed 's/^/# Linux /'
[[ ! -d class/infiniband ]] || echo "class/infiniband/"
for device in class/infiniband/*; do
  echo "[$device]"
  files "$device" node_type fw_ver node_guid parent
  device_of "$device"
  for port in "$device"/ports/*; do
    echo "[$port]"
    files "$port" state phys_state rate link_layer
    total=0 empty=0
    for gid in "$port"/gids/*; do
      n=${gid##*/} text=$(cat "$gid" 2>/dev/null || true)
      total=$((total + 1))
      if [[ -z ${text//[0:]/} ]]; then
        ((empty++)) || { files "$port" "gids/$n" "gid_attrs/types/$n" "gid_attrs/ndevs/$n"; }
        continue
      fi
      files "$port" "gids/$n" "gid_attrs/types/$n" "gid_attrs/ndevs/$n"
    done
    echo "# $total entries in the GID table, $empty of them empty; of those only the first is here"
  done
done
for uverbs in class/infiniband_verbs/uverbs*; do
  echo "[$uverbs]"
  files "$uverbs" ibdev abi_version
done
for misc in class/misc/rdma_cm*; do
  echo "[$misc]"
  files "$misc" dev abi_version
done
for port in kernel/config/rdma_cm/*/ports/*; do
  echo "[$port]"
  files "$port" default_roce_mode
done
for interface in class/net/*; do
  echo "[$interface]"
  files "$interface" address mtu type dev_port dev_id operstate speed mode
  [[ ! -L $interface/master ]] || echo "master -> $(readlink "$interface/master")"
  device_of "$interface"
done
ip -o addr show 2>/dev/null | while read -r _ name _ address _; do
  echo "@ ${name%%@*} $address"
done
