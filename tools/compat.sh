#!/usr/bin/env bash
# compat.sh [--root FOLDER] [--mirror URL] [TEST ARGUMENT...]: `./dev test` in a fresh Debian 13.
#
# Makes the system with debootstrap, copies the tree into it (what git knows, with changes that are
# not committed), and runs `./dev test TEST ARGUMENT...` there, which installs the packages first.
# Needs root, a network, and 6 GB of disk for the whole tree.
#
#   --root FOLDER   the system is kept there, and used again if it is there already; otherwise it
#                   lies in a temporary folder and is removed at the end
#   --mirror URL    where Debian's packages come from; otherwise where this machine's own do
#
# The run has mounts, processes and a root of its own: nothing stays mounted, and nothing goes on,
# whatever ends it. (It moves to its root by pivot_root(2): Bazel's sandbox makes user namespaces,
# which the kernel refuses to processes behind chroot(2).) A process of its own removes the
# temporary folder as soon as this script is gone, also when that was killed.
set -euo pipefail

readonly release=trixie

stop() {
  printf 'compat: %s\n' "$@" >&2
  exit 1
}

# The first address that this machine gets its own Debian release from.
own_mirror() {
  local codename
  # shellcheck source=/dev/null
  codename=$(. /etc/os-release && [[ $ID == debian ]] && echo "$VERSION_CODENAME") || return 0
  # shellcheck disable=SC2016  # the fields are apt's
  apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
    awk -v codename="$codename" '$2 == codename { print $1; exit }'
}

root='' mirror=''
while (($#)); do
  case $1 in
    --root) root=$(realpath -m -- "${2:?--root needs a folder}") && shift 2 ;;
    --mirror) mirror=${2:?--mirror needs a URL} && shift 2 ;;
    --) shift && break ;;
    *) break ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
((EUID == 0)) || stop "debootstrap and mounts need root: sudo ./dev compat"
command -v debootstrap >/dev/null || stop "there is no debootstrap: apt-get install debootstrap"
git rev-parse --is-inside-work-tree >/dev/null || stop "the tree is copied as git knows it"
mirror=${mirror:-$(own_mirror)}
[[ -n $mirror ]] || stop "this machine has no Debian mirror of its own: use --mirror URL"

if [[ -z $root ]]; then
  root=$(mktemp -d "${TMPDIR:-/var/tmp}/weft-compat.XXXXXX")
  # Reads until nobody holds the other end, which is this script and no child of its.
  # shellcheck disable=SC2016  # expanded by the inner shell
  exec {alive}> >(exec setsid bash -c '
    trap "" INT TERM HUP
    cat
    for _ in {1..30}; do rm -rf "$1" && break || sleep 1; done
    ' - "$root" >/dev/null 2>&1)
else
  exec {alive}>/dev/null
fi
run=''
# shellcheck disable=SC2317  # called by the trap
finish() {
  [[ -z $run ]] || kill -KILL "$run" 2>/dev/null || true
  exec {alive}>&-
  wait || true # Until all is removed.
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# What happens with mounts and processes of its own.
# shellcheck disable=SC2016  # expanded by the inner shell
inside='
  set -euo pipefail
  root=$1 release=$2 mirror=$3
  shift 3
  # The last thing that is made: a system that was cut short is begun anew.
  if [[ ! -e $root/etc/weft-compat ]]; then
    mkdir -p "$root"
    debootstrap --variant=minbase --include=ca-certificates "$release" "$root" "$mirror" >&2
    echo "$release" >"$root/etc/weft-compat"
  fi
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  rm -rf "$root/weft"
  mkdir -p "$root/weft"
  git ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d "" file; do [[ ! -e $file && ! -L $file ]] || printf "%s\0" "$file"; done |
    tar -c --null -T - | tar -x --no-same-owner -C "$root/weft"
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  cd "$root"
  pivot_root . .
  umount -l .
  cd /weft
  status=0
  env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin ./dev test "$@" || status=$?
  env -i HOME=/root PATH=/usr/bin:/bin bazel shutdown >/dev/null 2>&1 || true
  exit "$status"
'
# Killed with this script, and the processes inside with it. In the background, so that a signal is
# heard meanwhile.
setpriv --pdeathsig KILL \
  unshare --mount --pid --fork --kill-child --propagation private \
  bash -c "$inside" - "$root" "$release" "$mirror" "$@" {alive}>&- &
run=$!
status=0
wait "$run" || status=$?
run=''
exit "$status"
