#!/usr/bin/env bash
# Time stamps cost nothing where they are not asked for: a build without --config=trace has none of
# their data, and its program says so.
set -euo pipefail
program=$1

if nm -C "$program" 2>/dev/null | grep -i 'weft::.*trace'; then
  echo "an ordinary build has time stamps"
  exit 1
fi
status=0
said=$("$program" 2>&1) || status=$?
[[ $status == 2 && $said == *'built without time stamps'* ]] || { echo "$status: $said"; exit 1; }
