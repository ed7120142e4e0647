#!/usr/bin/env bash
# c_symbols_test.sh LIBRARY: libweft_c.so exports the functions of c_symbols.txt and nothing else, the
# headers declare these, and what was there once stays: a line is added to the file, none is taken out.
set -euo pipefail
library=$1
listed=$(sort -u tools/install/c_symbols.txt)

exported=$(nm -D --defined-only "$library" | awk '{print $3}' | sort -u)
diff <(echo "$listed") <(echo "$exported") ||
  { echo "$library does not export (<), or exports besides (>)"; exit 1; }

# A declaration: a name before a bracket that is in no comment, and in no type of a callback.
declared=$(cat weft/c.h weft/c_*.h | sed 's,//.*,,' | grep -oE '\bweft_[a-z0-9_]+\(' | tr -d '(' | sort -u)
diff <(echo "$listed") <(echo "$declared") ||
  { echo "the headers do not declare (<), or declare besides (>)"; exit 1; }

soname=$(readelf -d "$library" | grep -o 'soname: \[.*\]')
[[ $soname == "soname: [libweft_c.so.1]" ]] || { echo "$soname"; exit 1; }

# libweft.so is looked for beside it: an installed prefix may be moved.
runpath=$(readelf -d "$library" | grep -oE 'runpath: \[.*\]')
[[ $runpath == "runpath: [\$ORIGIN]" ]] || { echo "$runpath"; exit 1; }
echo "$(wc -l <<<"$listed") functions"
