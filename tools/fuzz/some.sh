#!/usr/bin/env bash
# some.sh FUZZER [OPTION]... -- FILE...: fuzzes for 20 seconds, beginning with these inputs.
#
# Always with the same random numbers: where it runs with every change, it is to fail by what changed,
# or by what a quicker machine reaches in that time. `./dev fuzz` takes new ones.
#
# Fails on what a sanitizer or the target reports. libFuzzer then prints the input in base64, and
# it is kept as an undeclared output of the test (bazel-testlogs/.../test.outputs).
set -euo pipefail
fuzzer=$1
shift
options=()
while [[ $1 != -- ]]; do
  options+=("$1")
  shift
done
shift
corpus=$TEST_TMPDIR/corpus
mkdir "$corpus"
cp -- "$@" "$corpus"
"$fuzzer" "${options[@]}" -seed=1 -max_total_time=20 -max_len=4096 -timeout=30 -rss_limit_mb=2048 \
  -artifact_prefix="${TEST_UNDECLARED_OUTPUTS_DIR:-$TEST_TMPDIR}/" -print_final_stats=1 "$corpus"
