#!/usr/bin/env bash
# weft_test.sh WEFT: the program as an operator runs it.
set -euo pipefail
weft=$1

fail() { echo "FAILED: $*" >&2; exit 1; }

# says STATUS PATTERN ARGUMENT...: its status, and a line of what it says on either output.
says() {
  local status=$1 pattern=$2 said got=0
  shift 2
  said=$("$weft" "$@" 2>&1) || got=$?
  ((got == status)) || fail "weft $*: status $got instead of $status: $said"
  grep -qE -- "$pattern" <<<"$said" || fail "weft $*: no line like '$pattern' in: $said"
}

says 0 '^  version ' help
says 0 '^usage: weft version$' help version
says 0 '^usage: weft version$' version --help
says 0 '^weft [0-9]+\.[0-9]+\.[0-9]+$' version
says 0 '^libfabric [0-9.]+, providers: ' version
says 2 'takes no arguments' version now
says 2 'no command "nonsense"' nonsense
says 2 '^usage: weft COMMAND$'
echo "passed"
