#!/usr/bin/env bash
# weft_scale runs each program over both paths, names its metrics as documented, and leaves nothing
# behind in /dev/shm.
set -euo pipefail
scale=$1
json=$TEST_TMPDIR/scale.json

"$scale" --connections 20 --repeat 1 --seconds 0.02 --transfer-mib 4 --json "$json"

transfers="transfers.alone.p50_us transfers.alone.p99_us"
for way in read fetch write; do
  transfers+=" transfers.$way.p99_ratio"
  for figure in p50_us p99_us GBps; do
    transfers+=" transfers.${way}_x1.$figure transfers.${way}_x8.$figure"
  done
done

threads=""
for drive in caller own_thread; do
  for count in 1 4 16; do
    threads+=" threads.${drive}_$count.kper_s"
    ((count == 1)) || threads+=" threads.${drive}_$count.ratio"
  done
done

for path in shm tcp; do
  for metric in $transfers $threads one.p50_us many.p50_us many.p50_ratio active.p50_us active.p50_ratio server_resident_KiB server_mapped_KiB \
    server_descriptors client_resident_KiB client_mapped_KiB client_descriptors engines_1.Mper_s \
    engines_2.Mper_s engines.scaling engines.cpu_scaling server_engines_1.Mper_s \
    server_engines_1.cpu_ns server_engines_2.Mper_s server_engines_2.cpu_ns \
    server_engines_2.cpu_ratio server_engines_4.Mper_s server_engines_4.cpu_ns \
    server_engines_4.cpu_ratio uneven.fuller uneven.even_ms uneven.ratio idle.server_percent idle.client_percent wakeup.awake_us \
    wakeup.asleep_us wakeup.both_asleep_us wakeup.eventfd_us wakeup.eventfd_round_trip_us \
    wakeup.ratio wakeup.both_ratio; do
    [[ $metric != engines* || $(nproc) -gt 1 ]] || continue
    line=$(grep "\"scale.$path.$metric\"" "$json") || { echo "no $path.$metric"; exit 1; }
    [[ $line =~ ^\{\"metric\":\ \"[A-Za-z0-9_.]+\",\ \"value\":\ [-0-9.e+]+\}$ ]] ||
      { echo "not JSON: $line"; exit 1; }
  done
done

# Over the first path only.
for limit in unlimited fixed adaptive; do
  for load in third full triple; do
    for figure in goodput p99_ratio p50_us p99_us; do
      grep -q "\"scale.shm.overload.${limit}_$load.$figure\"" "$json" ||
        { echo "no overload.${limit}_$load.$figure"; exit 1; }
    done
  done
done

for metric in one.p50_us many.p50_us many.p50_ratio; do
  grep -q "\"scale.sockets.$metric\"" "$json" || { echo "no sockets.$metric"; exit 1; }
done

status=0
"$scale" sideways 2>"$TEST_TMPDIR/said" || status=$?
[[ $status == 2 ]] || { echo "status $status for an unknown program"; exit 1; }
grep -q 'unknown argument sideways' "$TEST_TMPDIR/said" || { cat "$TEST_TMPDIR/said"; exit 1; }

left=$(find /dev/shm -name 'weft*')
[[ -z $left ]] || { echo "left in /dev/shm: $left"; exit 1; }
