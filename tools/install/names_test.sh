#!/usr/bin/env bash
# names_test.sh HEADERS: what generated code and the public headers show of the inside.
set -euo pipefail
headers=$1
tree=$PWD  # documents and .proto files, which are installed as they are
cd "$headers"

# Engine-room names: no program has to know them, neither in the public headers nor in what these need
# of the inside.
rooms='\b(Slab|SlabHandle|MpscQueue|Poller|TimerWheel|OpenBatch|CallSlot|WarmUp|Doorbell|ClientConnection& connection\(\)|Enter|Leave)\b'
find weft -name '*.h' | sort | while read -r header; do
  shown=$(sed 's,//.*,,' "$header" | grep -nE "$rooms" || true)
  [[ -z $shown ]] || { echo "$header shows the inside:"; echo "$shown"; exit 1; }
done

# Nor does a comment name a file that is not installed.
cited='(?<![\w./])(\w+/)*\w+\.(h|cc|md|proto|py|bzl|sh)\b'
{ find weft -name '*.h' ! -name '*.pb.h'; ls "$tree"/weft/*.proto; } | sort | while read -r file; do
  { grep -o '//.*' "$file" || true; } | { grep -oP "$cited" || true; } | while read -r name; do
    case $name in
      weft/*.h) place=$name ;;
      *) place=$tree/${name#share/doc/weft/} ;;
    esac
    [[ -e $place ]] || { echo "$file names $name, which is not installed"; exit 1; }
  done
done

# Who generates code includes few headers of ours.
count() { g++ -std=c++20 -I. -MM -x c++ - <<<"#include \"$1\"" | tr ' ' '\n' | grep -c '^weft/'; }
generated=$(count weft/generated.h)
((generated <= 18)) || { echo "weft/generated.h includes $generated headers of ours"; exit 1; }
echo "weft/generated.h includes $generated headers of ours"
