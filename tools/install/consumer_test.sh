#!/usr/bin/env bash
# consumer_test.sh INSTALL_PROGRAM: what is installed serves a program outside of this tree: through
# CMake with the shared and the static library, through pkg-config and Bazel, from C and Python, and
# from a prefix that was moved. The program has headers of its own with names that ours have inside.
set -euo pipefail

install=$PWD/$1
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
sim=$(dirname "$(readlink -f examples/sim/sim.cc)")
links=$(readlink -f tools/checks/links.py)
embedding=$(dirname "$(readlink -f examples/embedding/echo_loop.c)")
work=${TEST_TMPDIR:-$(mktemp -d)}/consumer
consumer=$work/program
prefix="$work/a prefix"
rm -rf "$work"
mkdir -p "$work"
cp -rL "$here/testdata/consumer" "$consumer"
mkdir -p "$consumer/examples/sim"
cp "$sim/sim.cc" "$sim/counter.proto" "$consumer/examples/sim"

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

say "all headers are below weft/, and few stand there"
[[ $(ls "$prefix/include") == weft ]] || { ls "$prefix/include"; exit 1; }
public=$(find "$prefix/include/weft" -maxdepth 1 -name '*.h' | wc -l)
# 27 of C++ at the most, each for one thing that a program may want, and 5 of C.
((public <= 32)) || { echo "$public public headers"; exit 1; }

say "the documents are there, and what they show"
for document in README.md docs/guide.md docs/errors.md examples/guide/deadlines.cc; do
  [[ -s "$prefix/share/doc/weft/$document" ]] || { echo "no $document"; exit 1; }
done

# Some led to what stands in the source tree alone.
say "each of their links leads to what is installed"
python3 -B "$links" "$prefix/share/doc/weft"

say "the installed weft makes certificates"
"$prefix/bin/weft" cert "$work/certs" >"$work/cert.log" || { cat "$work/cert.log"; exit 1; }
[[ -s "$work/certs/server.pem" && -s "$work/certs/client.key" ]] || { ls "$work/certs"; exit 1; }

say "every installed header finds what it includes, and builds without exceptions and RTTI"
cd "$prefix/include"
find . -name '*.h' -printf '#include "%P"\n' >"$work/all.cc"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
# pkg-config writes flags for a shell: the blank in the prefix is quoted.
declare -a compile link
eval "compile=($(pkg-config --cflags weft))"
g++ -std=c++20 -Wall -Wextra -fno-exceptions -fno-rtti -fsyntax-only "${compile[@]}" "$work/all.cc"

say "options that are set by name leave no warning about the others"
options=0
for option in ChannelOptions{.connect_at_once=false} ServerOptions{.executor=nullptr} \
  CallOptions{.timeout_us=1} EngineOptions{.spin_ns=1} NetworkOptions{.slot_bytes=8192} \
  LinkOptions{.connect_timeout_ns=1} ListenOptions{.max_connections=1} ConnectOptions{.hello={}} \
  ExportOptions{.tenant=1} RemoteMemoryOptions{.layout=1} BufferPoolOptions{.max_bytes=1} \
  DeriveOptions{.offset=1} SimOptions{.slot_bytes=8192} SimWire{.delay_ns=1}; do
  echo "auto option_$((++options)) = weft::$option;"
done >"$work/options.cc"
g++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only "${compile[@]}" -include weft/weft.h \
  -include weft/sim.h "$work/options.cc"

say "CMake"
cmake -S "$consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log" 2>&1 ||
  { cat "$work/cmake.log"; exit 1; }
cmake --build "$work/build" --parallel 2
greets "$work/build/greet_with_weft"
greets "$work/build/greet_with_weft_static"
[[ $(timeout 60 "$work/build/sim" 7) == *"total 200,"* ]] || { echo "examples/sim fails"; exit 1; }
[[ $(ldd "$work/build/greet_with_weft") == *"$prefix/lib/libweft.so"* ]] ||
  { echo "greet_with_weft does not use the installed library"; exit 1; }
[[ $(ldd "$work/build/greet_with_weft_static") != *libweft* ]] ||
  { echo "greet_with_weft_static needs the shared library"; exit 1; }

say "pkg-config, for a program without exceptions and RTTI"
mkdir "$work/generated"
variable() { pkg-config --variable="$1" weft | sed 's/\\ / /g'; }
protoc -I "$consumer/protos" -I "$(variable includedir)" --plugin="$(variable protoc_gen_weft)" \
  --cpp_out="$work/generated" --weft_out="$work/generated" \
  greeter.proto greeting.proto
eval "link=($(pkg-config --libs weft))"
g++ -std=c++20 -fno-exceptions -fno-rtti -I "$consumer" -I "$work/generated" "${compile[@]}" \
  -o "$work/greet" "$consumer/main.cc" "$work"/generated/*.cc "${link[@]}" -Wl,-rpath,"$prefix/lib"
greets "$work/greet"

say "C: with pkg-config, and no header or library of C++"
declare -a c_compile c_link
eval "c_compile=($(pkg-config --cflags weft-c)) c_link=($(pkg-config --libs weft-c))"
gcc -std=c11 -Wall -Wextra -pedantic -Werror "${c_compile[@]}" -o "$work/echo_loop" \
  "$embedding/echo_loop.c" "${c_link[@]}" -Wl,-rpath,"$prefix/lib"
[[ $(ldd "$work/echo_loop") == *"$prefix/lib/libweft_c.so.1"* ]] ||
  { echo "echo_loop does not use the installed library"; exit 1; }
coproc SERVER { timeout 60 "$work/echo_loop"; }
read -r address <&"${SERVER[0]}"
said=$(timeout 60 "$work/echo_loop" "$address" "hello, C")
[[ $said == "hello, C" ]] || { echo "echo_loop said: $said"; exit 1; }
server_process=$SERVER_PID server_input=${SERVER[1]}
exec {server_input}>&-
wait "$server_process" || { echo "the server in C failed"; exit 1; }

say "Python"
timeout 60 python3 "$embedding/weft_ctypes.py" "$prefix/lib/libweft_c.so"

say "Bazel"
cp "$consumer"/protos/*.proto "$consumer"
cp "$consumer/bazel/top.WORKSPACE" "$consumer/WORKSPACE"
cp "$consumer/bazel/top.BUILD" "$consumer/BUILD"
ln -s "$prefix/lib/bazel/weft" "$consumer/weft_repository"
echo "weft_repository" >"$consumer/.bazelignore"
cd "$consumer"
# Of its own: neither the user's settings nor the user's server. What runs in the test's sandbox
# cannot make another one.
bazel() {
  HOME=$work command bazel --max_idle_secs=5 --output_user_root="$work/bazel_root" "$@"
}
bazel build --cxxopt=-std=c++20 --host_cxxopt=-std=c++20 --spawn_strategy=local --jobs=2 \
  --curses=no --noshow_progress --symlink_prefix="$work/bazel-" //:greet
greets "$work/bazel-bin/greet"
bazel shutdown
