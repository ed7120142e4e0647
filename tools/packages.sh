#!/usr/bin/env bash
# packages.sh GROUP...: installs what is missing of these groups of third_party/packages.debian.
#
# Says what it installs before it does, through apt-get as root or by sudo. Silent and without any
# network when nothing is missing. Ends with status 1 and a way out where it can't install;
# WEFT_PACKAGES=skip goes on without looking.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ ${WEFT_PACKAGES:-} != skip ]] || exit 0

stop() {
  printf 'weft: %s\n' "$@" >&2
  exit 1
}

# Entries "a|b" of the groups whose "unless" doesn't hold.
needed() {
  local group package unless
  while read -r group package unless _; do
    [[ " $* " == *" $group "* ]] || continue
    case $unless in
      -) ;;
      command:*) ! command -v "${unless#command:}" >/dev/null || continue ;;
      *) [[ -z ${!unless:-} ]] || continue ;;
    esac
    echo "$package"
  done < <(grep -v -e '^#' -e '^$' third_party/packages.debian) | sort -u
}

# first_of ENTRY NAMES: the first alternative of the entry that is one of the lines NAMES.
first_of() {
  local name
  for name in ${1//|/ }; do
    if [[ $'\n'$2$'\n' == *$'\n'"$name"$'\n'* ]]; then
      echo "$name"
      return
    fi
  done
  return 1
}

installed_names() { dpkg-query -W -f '${Package} ${db:Status-Status}\n' | sed -n 's/ installed$//p'; }

# Of the packages that the entries name, those that apt has a version of.
installable_names() {
  local all="$*"
  # shellcheck disable=SC2086  # one word per package is what is meant
  apt-cache policy ${all//|/ } | awk '/^[^ ]/ { name = $1 } /Candidate: [^(]/ { print name }' |
    sed 's/:.*//'
}

# Sets `chosen` and `unknown` from `lacking`: what to install, and what apt doesn't have.
choose() {
  local entry name names
  names=$(installable_names "${lacking[@]}")
  chosen=() unknown=()
  for entry in "${lacking[@]}"; do
    if name=$(first_of "$entry" "$names"); then
      chosen+=("$name")
    elif [[ $entry != *"|-" ]]; then
      unknown+=("$entry")
    fi
  done
}

as_root() {
  if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
    -o Dpkg::Use-Pty=0 "$@"
}

mapfile -t wanted < <(needed "$@")
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  stop "this is not a Debian or Ubuntu system (no apt-get)." \
    "Install the equivalents of: ${wanted[*]}" \
    "and then set WEFT_PACKAGES=skip in the environment."
fi
installed=$(installed_names)
lacking=()
for entry in "${wanted[@]}"; do
  first_of "$entry" "$installed" >/dev/null || lacking+=("$entry")
done
((${#lacking[@]})) || exit 0

choose
((${#chosen[@]} + ${#unknown[@]})) || exit 0
if ((EUID != 0)) && ! command -v sudo >/dev/null; then
  stop "these packages are missing: ${lacking[*]}" \
    "They need root, and there is no sudo. As root: apt-get install ${lacking[*]%%|*}"
fi
if ((${#unknown[@]})); then
  echo "weft: apt doesn't know ${unknown[*]} yet: updating its lists" >&2
  apt_get update >&2 || echo "weft: apt-get update failed; going on with the lists there are" >&2
  choose
fi
if ((${#unknown[@]})); then
  stop "apt has no package for: ${unknown[*]}" \
    "Is there a network, and are the distribution's sources complete (Ubuntu: 'universe')?"
fi

how=$( ((EUID == 0)) && echo "as root" || echo "through sudo")
printf 'weft: installing %d Debian packages (%s): %s\n' "${#chosen[@]}" "$how" "${chosen[*]}" >&2
install_chosen() { apt_get install --no-install-recommends "${chosen[@]}" >&2; }
if ! install_chosen; then
  echo "weft: that failed, perhaps because the lists are old; once more with fresh ones" >&2
  if ! apt_get update >&2 || ! install_chosen; then
    stop "apt-get could not install: ${chosen[*]}" "Its own words are above. Is there a network?"
  fi
fi
