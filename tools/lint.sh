#!/usr/bin/env bash
# lint.sh [FILE...]: what a reviewer shouldn't have to say.
#
# Looks at the given files; without any, at what differs from the upstream branch (from the last
# commit where there is no upstream or no difference), committed or not. Layers and sizes are
# checked for the whole tree. Runs everything, names what failed, status 1 if anything did.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

base() {
  local upstream
  if upstream=$(git merge-base HEAD '@{upstream}' 2>/dev/null) &&
    ! git diff --quiet "$upstream" --; then
    echo "$upstream"
  elif git rev-parse -q --verify HEAD~1 >/dev/null; then
    echo HEAD~1
  else
    git hash-object -t tree /dev/null # The first commit: everything is new.
  fi
}

changed() {
  git diff --name-only --diff-filter=d "$(base)" --
  git ls-files --others --exclude-standard
}

# matching REGEX: those of the files, as lines.
matching() { printf '%s\n' "${files[@]}" | grep -E "$1" | grep -v /testdata/ || true; }

failed=()
# step NAME COMMAND...: runs it, remembers when it fails.
step() {
  local name=$1
  shift
  echo "lint: $name"
  "$@" || failed+=("$name")
}

format() { clang-format --dry-run --Werror "$@"; }

# packages FILE...: the Bazel packages that they belong to.
packages() {
  local folder
  for folder in "$@"; do
    while folder=$(dirname "$folder") && [[ ! -e $folder/BUILD && $folder != . ]]; do :; done
    echo "//${folder#.}:all"
  done | sort -u
}

# Headers are checked through the sources that include them.
tidy() {
  local commands file status=0 targets
  commands=$(mktemp -d)
  mapfile -t targets < <(packages "$@")
  if ! tools/compile_commands.py --out="$commands/compile_commands.json" "${targets[@]}"; then
    status=1
  else
    for file in "$@"; do
      clang-tidy -p "$commands" --quiet "$file" 2> >(grep -v 'warnings\? generated' >&2) || status=1
    done
  fi
  rm -r "$commands"
  return "$status"
}

if (($#)); then files=("$@"); else mapfile -t files < <(changed | sort -u); fi

mapfile -t cxx < <(matching '\.(h|cc|inc)$')
mapfile -t sources < <(matching '\.cc$')
mapfile -t scripts < <(matching '(\.sh|^dev|^\.ci/run)$')

((!${#cxx[@]})) || step "clang-format (${#cxx[@]} files)" format "${cxx[@]}"
((!${#sources[@]})) || step "clang-tidy (${#sources[@]} files)" tidy "${sources[@]}"
((!${#scripts[@]})) || step "shellcheck (${#scripts[@]} files)" shellcheck "${scripts[@]}"
step "layering" tools/checks/layering.py
step "check reasons" tools/checks/check_reasons.py
step "file sizes" tools/checks/file_sizes.py
step "prose width" tools/checks/prose_width.py
step "links" tools/checks/links.py
step "error texts" tools/checks/error_texts.py
step "named tests" tools/checks/named_tests.py

if ((${#failed[@]})); then
  printf 'lint: FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "lint: nothing to say"
