#!/usr/bin/env bash
# symbols_test.sh SHARED STATIC: the shared library exports weft and nothing else, and all of it; and
# no function has a static variable that is made when it is first called.
set -euo pipefail
shared=$1 static=$2

# What is weft's, as mangled names: its namespace, what the compiler makes for its classes and
# functions (tables, thunks, guards), and what messages with fields of weft/memory.proto refer to.
ours='^(_ZN?K?4weft|_ZT[VITSWH]N4weft|_ZT[hv]n?[0-9_n]*N?K?4weft|_ZG[VR]Z?NK?4weft|_ZZNK?4weft'
ours+='|descriptor_table_weft_2f|_ZN6google8protobuf5Arena[0-9]+CreateMaybeMessageIN4weft)'

exported=$(nm -D --defined-only "$shared" | cut -d' ' -f3- | sort -u)
[[ -n $exported ]] || { echo "$shared exports nothing"; exit 1; }
strangers=$(grep -Ev "$ours" <<<"$exported" || true)
[[ -z $strangers ]] || { echo "$shared exports what is not weft's:"; c++filt <<<"$strangers" | head -20; exit 1; }

# All that the static library offers in the namespace is in the shared one too: a program that links
# with one links with the other.
wanted=$(nm --defined-only --extern-only "$static" 2>/dev/null | awk '$2 ~ /[TDBRV]/ {print $3}' |
  grep -E '^_ZN?K?4weft' | sort -u)
missing=$(comm -23 <(echo "$wanted") <(echo "$exported"))
[[ -z $missing ]] || { echo "$shared lacks:"; c++filt <<<"$missing" | head -20; exit 1; }
# One thread makes such a variable and others wait for it: in a child of a fork at that moment they
# would wait for ever. (Of a variable of each thread there is nobody to wait for.)
listed=$(readelf -sW "$static" 2>/dev/null | awk '$4 != "TLS" {print $8}')
grep -q '^_ZN4weft' <<<"$listed" || { echo "readelf lists nothing of $static"; exit 1; }
guards=$(grep -E '^_ZGVZ+N?K?4weft' <<<"$listed" | sort -u || true)
[[ -z $guards ]] || { echo "make these ProcessWide (core/process_wide.h):"; c++filt <<<"$guards"; exit 1; }
echo "$(wc -l <<<"$exported") symbols, all of weft"
