#!/usr/bin/env bash
# compare.sh BIN_DIR [MIB]: a tree of files copied in and out, over Weft and over plain TCP sockets.
#
# Makes a tree of MIB mebibytes (1024) of many sizes in memory (/dev/shm), and copies it to a server
# and back: by fileshare over shm and over tcp, with and without CRC32C, and by plain_tcp, which is
# sendfile(2) and recv(2) over four streams without any request. Everything is copied ROUNDS times
# (3), in turns; the table has medians, of the time that each program says its copy took, without its
# own start. After each copy every checksum and mode is compared. Needs 4 times MIB of /dev/shm. Ends
# cleanly on Ctrl-C.
set -euo pipefail
(($# == 1 || $# == 2)) || { echo "usage: compare.sh BIN_DIR [MIB]" >&2; exit 2; }

bin=$1
mib=${2:-1024}
rounds=${ROUNDS:-3}

scratch=$(mktemp -d /dev/shm/fileshare-compare.XXXXXX)
results=$scratch/results
servers=()
mkdir "$scratch"/{tree,weft,plain,back}

fail() {
  echo "compare: $*" >&2
  exit 1
}

cleanup() {
  local server
  for server in "${servers[@]}"; do kill -TERM "$server" 2>/dev/null || true; done
  for server in "${servers[@]}"; do wait "$server" 2>/dev/null || true; done
  chmod -R u+w "$scratch" 2>/dev/null || true
  rm -rf "$scratch"
}
trap cleanup EXIT
trap 'echo >&2; echo "compare: interrupted" >&2; exit 130' INT TERM

# manifest FOLDER: names, kinds, modes of files, and checksums, as one checksum.
manifest() {
  (cd "$1" &&
    { find . -type d -printf 'folder %P\n' && find . -type f -printf '%m %P\n'; } | sort &&
    find . -type f -print0 | sort -z | xargs -0 -r -n 500 -P 2 sha256sum | sort) | sha256sum
}

# copy NAME TO COMMAND...: one copy: timed, compared, noted.
copy() {
  local name=$1 to=$2 seconds
  shift 2
  "$@" >"$scratch/said" || fail "$name: $(cat "$scratch/said")"
  seconds=$(sed -n 's/.* in \([0-9.]*\) s.*/\1/p' "$scratch/said")
  [[ $(manifest "$to") == "$expected" ]] || fail "$name: the copy differs"
  printf '%s\t%s\n' "$name" "$seconds" >>"$results"
  rm -rf "${scratch:?}/back" && mkdir "$scratch/back"
}

weft() { "$bin/fileshare_client" --server="$address" "$@"; }

# both_ways PATH CRC: in, then out; what is on the server is removed.
both_ways() {
  local name="Weft, $1, $2" crc=true
  [[ $2 != "no CRC" ]] || crc=false
  copy "$name	in" "$scratch/weft/$1" weft --paths="$1" --crc=$crc cp "$scratch/tree" "remote:$1"
  copy "$name	out" "$scratch/back" weft --paths="$1" --crc=$crc cp "remote:$1" "$scratch/back"
  rm -rf "$scratch/weft/$1"
}

plain() {
  copy "plain TCP sockets	in" "$scratch/plain" "$bin/plain_tcp" put "$port" "$scratch/tree"
  copy "plain TCP sockets	out" "$scratch/back" "$bin/plain_tcp" get "$port" "$scratch/back"
  find "$scratch/plain" -mindepth 1 -delete # the server has the folder itself open
}

table() {
  awk -F '\t' -v bytes="$bytes" '
    { key = $1 FS $2; if (!(key in n)) order[++keys] = key; seconds[key, ++n[key]] = $3 }
    function median(key,   i, j, swap, all) {
      for (i = 1; i <= n[key]; i++) for (j = i; j > 1 && seconds[key, j] < seconds[key, j - 1]; j--) {
        swap = seconds[key, j]; seconds[key, j] = seconds[key, j - 1]; seconds[key, j - 1] = swap
      }
      return seconds[key, int((n[key] + 1) / 2)]
    }
    END {
      for (i = 1; i <= keys; i++) time[order[i]] = median(order[i])
      printf "%-28s %-4s %9s %9s %14s\n", "", "", "seconds", "GB/s", "plain TCP = 1"
      for (i = 1; i <= keys; i++) {
        split(order[i], part, FS)
        base = time["plain TCP sockets" FS part[2]]
        printf "%-28s %-4s %9.3f %9.2f %14.2f\n", part[1], part[2], time[order[i]],
               bytes / time[order[i]] / 1e9, base / time[order[i]]
      }
    }' "$results"
}

echo "making a tree of $mib MiB"
made=$("$bin/make_tree" "$scratch/tree" "$mib")
echo "$made"
bytes=$(awk '{ print $(NF - 1) }' <<<"$made")
expected=$(manifest "$scratch/tree")

mkfifo "$scratch/says" "$scratch/says_plain"
"$bin/fileshare_server" --root="$scratch/weft" >"$scratch/says" &
servers+=($!)
exec 3<"$scratch/says" # stays open: what the server says as it leaves has a reader
read -r line <&3 || fail "fileshare_server did not start"
address=${line##* }
"$bin/plain_tcp" serve "$scratch/plain" >"$scratch/says_plain" &
servers+=($!)
read -r line <"$scratch/says_plain" || fail "plain_tcp did not start"
port=${line##* }

for ((round = 1; round <= rounds; round++)); do
  echo "round $round of $rounds"
  plain
  for path in shm tcp; do
    for crc in CRC32C "no CRC"; do both_ways "$path" "$crc"; done
  done
done
echo
table
