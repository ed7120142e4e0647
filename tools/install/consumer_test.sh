#!/usr/bin/env bash
# consumer_test.sh INSTALL_PROGRAM: what is installed serves a program outside of this tree: through
# CMake with the shared and the static library, through pkg-config, and from a prefix that was moved.
set -euo pipefail

install=$PWD/$1
consumer=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/testdata/consumer
work=${TEST_TMPDIR:-$(mktemp -d)}/consumer
prefix="$work/a prefix"
rm -rf "$work"
mkdir -p "$work"

say() { echo "=== $*"; }

# greets PROGRAM: it must make its call.
greets() {
  local said
  said=$(timeout 60 "$@")
  [[ $said == "hello, consumer" ]] || { echo "$1 said: $said"; exit 1; }
  say "$1: $said"
}

say "install, and move what was installed"
"$install" "$work/first"
mv "$work/first" "$prefix"

say "every installed header finds what it includes, and builds without exceptions"
cd "$prefix/include/weft"
find . -name '*.h' -printf '#include "%P"\n' >"$work/all.cc"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
# pkg-config writes flags for a shell: the blank in the prefix is quoted.
declare -a compile link
eval "compile=($(pkg-config --cflags weft))"
g++ -std=c++20 -Wall -Wextra -fno-exceptions -fsyntax-only "${compile[@]}" "$work/all.cc"

say "CMake"
cmake -S "$consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log" 2>&1 ||
  { cat "$work/cmake.log"; exit 1; }
cmake --build "$work/build" --parallel 2
greets "$work/build/greet_with_weft"
greets "$work/build/greet_with_weft_static"
[[ $(ldd "$work/build/greet_with_weft") == *"$prefix/lib/libweft.so"* ]] ||
  { echo "greet_with_weft does not use the installed library"; exit 1; }
[[ $(ldd "$work/build/greet_with_weft_static") != *libweft* ]] ||
  { echo "greet_with_weft_static needs the shared library"; exit 1; }

say "pkg-config"
mkdir "$work/generated"
variable() { pkg-config --variable="$1" weft | sed 's/\\ / /g'; }
protoc -I "$consumer/protos" -I "$(variable includedir)" --plugin="$(variable protoc_gen_weft)" \
  --cpp_out="$work/generated" --weft_out="$work/generated" \
  greeter.proto greeting.proto
eval "link=($(pkg-config --libs weft))"
g++ -std=c++20 -I "$work/generated" "${compile[@]}" -o "$work/greet" \
  "$consumer/main.cc" "$work"/generated/*.cc "${link[@]}" -Wl,-rpath,"$prefix/lib"
greets "$work/greet"
