#!/usr/bin/env bash
# c_symbols_test.sh LIBRARY: libweft_c.so exports the functions of c_symbols.txt and nothing else, the
# headers declare these, and what was there once stays: a line is added to the file, none is taken out.
# c/abi_test.c holds the type of each of them, and the value of each constant of the headers.
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

held=$(grep -oE '\bweft_[a-z0-9_]+\(' c/abi_test.c | tr -d '(' | sort -u)
diff <(echo "$listed") <(echo "$held") ||
  { echo "c/abi_test.c does not hold the type of (<), or that of a function which is none (>)"; exit 1; }
constants=$(cat weft/c.h weft/c_*.h | sed 's,//.*,,' | grep -oE '\bWEFT_[A-Z0-9_]+ =' | tr -d ' =' | sort -u)
held=$(grep -oE '^VALUE\(WEFT_[A-Z0-9_]+' c/abi_test.c | cut -d'(' -f2 | sort -u)
diff <(echo "$constants") <(echo "$held") ||
  { echo "c/abi_test.c does not hold the value of (<), or that of a constant which is none (>)"; exit 1; }

soname=$(readelf -d "$library" | grep -o 'soname: \[.*\]')
[[ $soname == "soname: [libweft_c.so.1]" ]] || { echo "$soname"; exit 1; }

# libweft.so is looked for beside it: an installed prefix may be moved.
runpath=$(readelf -d "$library" | grep -oE 'runpath: \[.*\]')
[[ $runpath == "runpath: [\$ORIGIN]" ]] || { echo "$runpath"; exit 1; }
echo "$(wc -l <<<"$listed") functions, $(wc -l <<<"$constants") constants"
