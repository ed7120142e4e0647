#!/usr/bin/env bash
# must_report.sh PROGRAM TEXT [PROGRAM TEXT]...: passes when each program fails and its output
# has the text. A sanitizer that is switched off, or a suppression that is too wide, fails here.
set -uo pipefail
failures=0
while (($# >= 2)); do
  if output=$("$1" 2>&1); then
    echo "$1 ended with success: the sanitizer is not at work"
    failures=1
  elif ! grep -q -e "$2" <<<"$output"; then
    printf '%s failed, but without "%s":\n%s\n' "$1" "$2" "$output"
    failures=1
  else
    echo "$1: reported $2"
  fi
  shift 2
done
exit "$failures"
