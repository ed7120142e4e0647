#!/usr/bin/env bash
# weft_perf runs every leg over both paths, names its metrics as documented, and leaves nothing
# behind in /dev/shm.
set -euo pipefail
perf=$1
json=$TEST_TMPDIR/perf.json

"$perf" --repeat 1 --seconds 0.05 --json "$json"

for path in shm tcp; do
  for metric in raw_rtt_64B.p50_us raw_rtt_64B.p99_us raw_rtt_64B.p999_us raw_rate_64B.per_s \
    raw_oneway_64B.per_s raw_read_64B.p50_us raw_read_64B.per_s raw_write_1MiB.GBps \
    raw_bulk_1MiB.GBps unary_64B.p50_us unary_64B.p99_us unary_64B.p999_us unary_64B.rate_per_s \
    read_64B.p50_us read_64B.per_s write_1MiB.GBps bulk_1MiB.GBps bulk_1MiB_crc.GBps; do
    line=$(grep "\"$path.$metric\"" "$json") || { echo "no $path.$metric"; exit 1; }
    [[ $line =~ ^\{\"metric\":\ \"[A-Za-z0-9_.]+\",\ \"value\":\ [0-9.e+-]+\}$ ]] ||
      { echo "not JSON: $line"; exit 1; }
    [[ $line != *'"value": 0}' ]] || { echo "nothing measured: $line"; exit 1; }
  done
done

left=$(find /dev/shm -name 'weft*')
[[ -z $left ]] || { echo "left in /dev/shm: $left"; exit 1; }
