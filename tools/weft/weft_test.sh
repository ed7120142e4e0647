#!/usr/bin/env bash
# weft_test.sh WEFT: the program as an operator runs it.
set -euo pipefail
weft=$(realpath "$1")

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

says 0 '^use +path +device +link +address +mtu +Gb/s +state +node$' devices
says 0 '^[1-9] +shm +memory +shared memory ' devices
says 0 '^registration limit \(memlock\): ' devices
says 2 'is not understood' devices --xml
WEFT_PATHS=tcp says 0 '^no +shm +memory ' devices
WEFT_PATHS=tcp says 0 '^ +denied by WEFT_PATHS=tcp$' devices
WEFT_PATHS=nonsense says 1 'WEFT_PATHS=nonsense' devices

made=${TEST_TMPDIR:?}/made
says 0 '^made ca.pem and ca.key in .*, an authority for development' cert "$made"
says 1 'server.pem is there already: --replace makes a new one' cert "$made"
says 0 "^  --tls-certificate=$made/kv.pem --tls-key=$made/kv.key --tls-roots=$made/ca.pem\$" \
  cert "$made" kv=10.0.0.7
says 2 'A folder is needed' cert
says 2 'must be a number, 1..365' cert "$made" --days=0
for file in ca server client kv; do
  [[ $(stat -c %a "$made/$file.key") == 600 ]] || fail "$file.key can be read by others"
done
# Two sides that are not ours take them for what they are.
python3 -c '
import ssl, sys
made = sys.argv[1]
def context(side, name):
    made_for = ssl.create_default_context(side, cafile=made + "/ca.pem")
    made_for.verify_mode = ssl.CERT_REQUIRED
    made_for.verify_flags |= ssl.VERIFY_X509_STRICT
    made_for.load_cert_chain("%s/%s.pem" % (made, name), "%s/%s.key" % (made, name))
    return made_for
up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
client = context(ssl.Purpose.SERVER_AUTH, "client").wrap_bio(down, up, server_hostname="10.0.0.7")
server = context(ssl.Purpose.CLIENT_AUTH, "kv").wrap_bio(up, down, server_side=True)
for side in (client, server, client, server):
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        pass
assert ("DNS", "kv") in client.getpeercert()["subjectAltName"], client.getpeercert()
assert ("DNS", "client") in server.getpeercert()["subjectAltName"], server.getpeercert()
' "$made" || fail "a TLS handshake with what weft cert has made"

says 2 'An address is needed' explain
says 2 'is not understood' explain 127.0.0.1:1 --xml
says 1 '^no connection to 127.0.0.1:1: ' explain 127.0.0.1:1
WEFT_ROUTED=maybe says 1 'WEFT_ROUTED=maybe: it must be 0 or 1' explain 127.0.0.1:1
{ "$weft" explain 127.0.0.1:1 --json || true; } | python3 -c '
import json, sys
answer = json.load(sys.stdin)
assert answer["format"] == 1 and not answer["connected"] and answer["error"], answer
' || fail "weft explain --json"

# A program of its own is found in PATH, gets its words as they are, and its status is weft's.
programs=$made/programs
mkdir "$programs"
printf '#!/bin/sh\nprintf "<%%s>" "$@"\nexit 7\n' >"$programs/weft_echo-1"
chmod +x "$programs/weft_echo-1"
status=0
said=$(PATH=$programs:$PATH "$weft" echo-1 'two words' '' --help) || status=$?
[[ $status == 7 && $said == '<two words><><--help>' ]] || fail "weft echo-1: $status $said"
says 2 'no command "echo-1"' echo-1
mkdir "$programs/weft_x"
cp "$programs/weft_echo-1" "$programs/weft_x/echo"
(cd "$programs" && says 2 'no command "x/echo"' x/echo)
said=$(PATH=$programs:$PATH "$weft" help echo-1) || true
[[ $said == '<--help>' ]] || fail "weft help echo-1: $said"
# Neither nothing nor an option is a program's name.
cp "$programs/weft_echo-1" "$programs/weft_"
cp "$programs/weft_echo-1" "$programs/weft_--verbose"
PATH=$programs:$PATH says 2 'no command ""' ''
PATH=$programs:$PATH says 2 'no command "--verbose"' --verbose

# One beside weft comes before those in PATH, also where it cannot be started.
beside=$made/beside
mkdir "$beside"
cp -L "$weft" "$beside/weft"
libraries=$(ldd "$weft" | sed -n 's|.*=> \(/.*\)/[^/]* (.*|\1|p' | sort -u | paste -sd:)
printf '#!/bin/sh\necho "$0"\n' >"$beside/weft_echo-1"
chmod +x "$beside/weft_echo-1"
said=$(PATH=$programs:$PATH LD_LIBRARY_PATH=$libraries "$beside/weft" echo-1)
[[ $said == "$(realpath "$beside")/weft_echo-1" ]] || fail "weft echo-1 beside another one: $said"
chmod -x "$beside/weft_echo-1"
status=0
said=$(PATH=$programs:$PATH LD_LIBRARY_PATH=$libraries "$beside/weft" echo-1 2>&1) || status=$?
[[ $status == 1 && $said == *"cannot start "*"/beside/weft_echo-1: Permission denied"* ]] ||
  fail "weft echo-1, which cannot be started: $status $said"

# The JSON form is JSON, and says what the table says.
"$weft" devices --json | python3 -c '
import json, sys
host = json.load(sys.stdin)
assert host["format"] == 1, host
paths = {path["path"]: path for path in host["paths"]}
assert paths["shm"]["used"] and paths["shm"]["place"] == 1, paths
assert paths["shm"]["free_bytes"] > 0, paths
assert all(path["reason"] for path in host["paths"]), paths
assert (host["no_rdma"] is None) == ("verbs" in paths), host
' || fail "weft devices --json"
echo "passed"
