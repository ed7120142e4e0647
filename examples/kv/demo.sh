#!/usr/bin/env bash
# demo.sh BIN_DIR [TEXT]: a key-value service between two processes, over shm and over tcp, in the
# clear and by TLS. BIN_DIR: bazel-bin, or one like it.
#
# Starts kv_server, loads a text of many lines through kv_client, compares every value, runs the
# YCSB workloads A, B and C, and prints what was reached. Then the same reads without the server: by
# remote reads of its memory, beside calls. Then, with certificates that `weft cert` makes, a server
# that knows its clients, and what that costs. TEXT is a word list by default.
# DEMO_SECONDS: how long each workload runs (2). Ends cleanly on Ctrl-C.
set -euo pipefail
(($# == 1 || $# == 2)) || { echo "usage: demo.sh BIN_DIR [TEXT]" >&2; exit 2; }

bin=$1/examples/kv
weft=$1/tools/weft/weft
seconds=${DEMO_SECONDS:-2}
outstanding=16
# How long the server may take to leave once it was told to; it needs milliseconds.
stop_seconds=5

scratch=$(mktemp -d)
results=$scratch/results
tls_results=$scratch/tls_results
server=
tls=() # the client's flags

fail() {
  echo "demo: $*" >&2
  exit 1
}

word_list() {
  local file
  for file in /usr/share/dict/american-english /usr/share/dict/british-english /usr/share/dict/words; do
    [[ -r $file ]] && (($(wc -l <"$file") >= 100000)) && echo "$file" && return
  done
  fail "no word list of 100,000 lines: install wamerican, or name a text: demo.sh BIN_DIR TEXT"
}

# Reads the first line of the server: it is written once clients can connect. The server has a
# session of its own, so that Ctrl-C reaches it through cleanup() only, after the client. It ends
# with this script, also when that is killed. start_server FLAG...
start_server() {
  local line
  rm -f "$scratch/server"
  mkfifo "$scratch/server"
  setsid setpriv --pdeathsig TERM "$bin/kv_server" "$@" >"$scratch/server" &
  server=$!
  exec 3<"$scratch/server"
  read -r line <&3 || fail "kv_server did not start"
  address=${line#listening on }
}

# Prints what the server says as it leaves; its end closes the pipe.
stop_server() {
  local line
  kill -TERM "$server" 2>/dev/null || true
  while read -t "$stop_seconds" -r line <&3; do echo "  $line"; done
  kill -KILL "$server" 2>/dev/null || true # nothing to do where it left in time
  wait "$server" 2>/dev/null || true
  server=
}

cleanup() {
  [[ -z $server ]] || stop_server >/dev/null
  rm -rf "$scratch"
}
trap cleanup EXIT
# Keys do not stay behind a script that was killed: this pipe ends with it.
exec 4> >(trap '' INT TERM HUP; cat >/dev/null; rm -rf "$scratch")
trap 'echo >&2; echo "demo: interrupted" >&2; exit 130' INT TERM

client() { "$bin/kv_client" --server="$address" "${tls[@]}" "$@"; }
title() { printf '\n== %s\n' "$*"; }

run_path() {
  local path=$1
  title "over $path"
  client --paths="$path" explain
  client --paths="$path" load "$text"
  client --paths="$path" verify "$text"
  client --paths="$path" verify "$text" --get=one-sided
  client --paths="$path" ycsb --workload=A,B,C --seconds="$seconds" \
    --outstanding="$outstanding" --results="$results"
  client --paths="$path" ycsb --workload=C --noload --seconds="$seconds" \
    --outstanding=1 --results="$results"
  for outstanding_gets in "$outstanding" 1; do
    client --paths="$path" ycsb --workload=C --noload --seconds="$seconds" --get=one-sided \
      --outstanding="$outstanding_gets" --results="$results"
  done
}

# flags_of NAME: those of a program that shows its certificate.
flags_of() {
  printf '%s\n' "--tls-certificate=$scratch/certs/$1.pem" "--tls-key=$scratch/certs/$1.key" \
    "--tls-roots=$scratch/certs/ca.pem"
}

# The same service for those alone who have a certificate, and what was measured above once more.
run_tls_path() {
  local path=$1
  title "over $path, by TLS"
  client --paths="$path" explain
  client --paths="$path" load "$text"
  client --paths="$path" verify "$text"
  client --paths="$path" ycsb --workload=A,C --seconds="$seconds" \
    --outstanding="$outstanding" --results="$tls_results"
  client --paths="$path" ycsb --workload=C --noload --seconds="$seconds" \
    --outstanding=1 --results="$tls_results"
}

# A client that has no certificate must be turned away.
try_without_certificate() {
  local said status=0
  said=$("$bin/kv_client" --server="$address" explain 2>&1) || status=$?
  ((status == 1)) || fail "a client without a certificate was served: $said"
  echo "${said##*$'\n'}"
}

# Of awk: 1234567 -> 1,234,567.
commas='function commas(n,   text) {
  text = sprintf("%d", n)
  while (match(text, /[0-9][0-9][0-9][0-9]($|,)/))
    text = substr(text, 1, RSTART) "," substr(text, RSTART + 1)
  return text
}'

summary() {
  awk -F '\t' "$commas"'
    BEGIN {
      mix["A"] = "50 % reads, 50 % updates"
      mix["B"] = "95 % reads, 5 % updates"
      mix["C"] = "reads only"
      line = "%-5s %-4s %-26s %11s %12s %10s %10s %10s %7s\n"
      printf line, "path", "YCSB", "", "outstanding", "calls/s", "p50", "p99", "p99.9", "errors"
    }
    $10 == "rpc" {
      printf line, $1, $2, mix[$2], $3, commas($5), sprintf("%.1f us", $6),
             sprintf("%.1f us", $7), sprintf("%.1f us", $8), $9
    }' "$results"
}

# Reads only, both ways, and the second in shares of the first.
comparison() {
  awk -F '\t' "$commas"'
    BEGIN {
      line = "%-5s %11s %-10s %12s %10s %10s %20s\n"
      printf line, "path", "outstanding", "get", "gets/s", "p50", "p99", "server CPU each"
    }
    function us(number, digits) { return sprintf("%." digits "f us", number) }
    function share(a, b) { return b > 0 ? sprintf("x %.2f", a / b) : "-" }
    $2 == "C" {
      place = $1 FS $3
      if (!(place in seen)) places[++count] = place
      seen[place] = 1
      rate[place, $10] = $4; p50[place, $10] = $6; p99[place, $10] = $7; cpu[place, $10] = $11
    }
    END {
      for (i = 1; i <= count; ++i) {
        place = places[i]
        split(place, name, FS)
        for (way = 1; way <= 2; ++way) {
          get = way == 1 ? "rpc" : "one-sided"
          printf line, name[1], name[2], get, commas(rate[place, get]), us(p50[place, get], 2),
                 us(p99[place, get], 1), us(cpu[place, get], 2)
        }
        printf line, "", "", "  ratio", share(rate[place, "one-sided"], rate[place, "rpc"]),
               share(p50[place, "one-sided"], p50[place, "rpc"]),
               share(p99[place, "one-sided"], p99[place, "rpc"]), ""
      }
    }' "$results"
}

# Calls in the clear, and by TLS in shares of them.
tls_comparison() {
  awk -F '\t' "$commas"'
    BEGIN {
      line = "%-5s %-4s %11s %12s %12s %8s %10s %10s %8s\n"
      printf line, "path", "YCSB", "outstanding", "calls/s", "by TLS", "ratio", "p50", "by TLS", "ratio"
    }
    function us(number) { return sprintf("%.2f us", number) }
    function share(a, b) { return b > 0 ? sprintf("x %.2f", a / b) : "-" }
    $10 != "rpc" { next }
    NR == FNR { rate[$1, $2, $3] = $5; p50[$1, $2, $3] = $6; next }
    {
      plain = rate[$1, $2, $3]
      printf line, $1, $2, $3, commas(plain), commas($5), share($5, plain),
             us(p50[$1, $2, $3]), us($6), share($6, p50[$1, $2, $3])
    }' "$results" "$tls_results"
}

text=${2:-$(word_list)}
[[ -r $text ]] || fail "cannot read $text"
start_server

title "one server, one client, two processes"
echo "kv_server is process $server and serves at $address"
echo "left to itself, a client here would take this path:"
client explain

for path in shm tcp; do run_path "$path"; done

title "the server, told to stop"
stop_server

title "the same for those alone who can prove who they are"
"$weft" cert "$scratch/certs"
mapfile -t server_tls < <(flags_of server)
mapfile -t tls < <(flags_of client)
start_server "${server_tls[@]}"
echo "kv_server is process $server and serves at $address; a client without a certificate is told:"
try_without_certificate
for path in shm tcp; do run_tls_path "$path"; done
stop_server

title "summary: 100,000 records of 10 fields of 100 bytes, zipfian"
summary

title "a GET by one-sided reads, beside a GET by a call"
comparison

title "calls by TLS, beside calls in the clear"
tls_comparison
