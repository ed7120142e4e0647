#!/usr/bin/env bash
# weft_perf measures every pattern over both paths, alone and with more outstanding, writes a
# document that says so, and leaves nothing behind in /dev/shm.
set -euo pipefail
perf=$1
json=$TEST_TMPDIR/perf.json

cells=(unary.64B.x1 unary.64B.x64 unary.64KiB.x8 coroutine.64B.x1
  stream.64B.x1 stream.300B.x64 stream.64KiB.x8 messages.300B.x64 messages.1MiB.x8 bulk.64KiB.x1
  bulk_checked.1MiB.x8 read.64B.x1 read.64B.x64 write.1MiB.x8)
only=$(printf ',%s' "${cells[@]}" | sed 's/\./:/g; s/:x/:/g')

"$perf" --only "${only#,}" --quick --repeat 1 --seconds 0.02 --json "$json"

for path in shm tcp; do
  for cell in "${cells[@]}"; do
    for kind in raw weft; do
      case $cell.$kind in bulk_checked.*.raw | coroutine.*.raw | stream.*.raw) continue ;; esac
      line=$(grep -F "\"metric\": \"$path.$cell.$kind\"" "$json") ||
        { echo "no $path.$cell.$kind"; exit 1; }
      [[ $line != *'"per_s": 0,'* ]] || { echo "nothing measured: $line"; exit 1; }
      [[ $cell != *.x1 || $line == *'"p99.99": '* ]] || { echo "not timed: $line"; exit 1; }
    done
  done
done
python3 -m json.tool "$json" >/dev/null || { echo "not JSON"; exit 1; }

left=$(find /dev/shm -name 'weft*')
[[ -z $left ]] || { echo "left in /dev/shm: $left"; exit 1; }
