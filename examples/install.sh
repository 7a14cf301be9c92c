#!/usr/bin/env bash
# Installs what Sixfold needs to build and run, from Debian's or Ubuntu's packages; nothing when all of it is there.
# Further package names may be given; NAME? is one that is done without where apt does not have it. Uses sudo when not
# root.
set -euo pipefail

packages=(cmake ninja-build g++ libopenmpi-dev openmpi-bin libeigen3-dev libspdlog-dev libgtest-dev libcli11-dev
  nlohmann-json3-dev libxxhash-dev "$@")

is_available() { apt-cache show "$1" >/dev/null 2>&1; }
has_lists() { compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; }

missing=() optional=()
for name in "${packages[@]}"; do
  package=${name%\?}
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] && continue
  if [ "$name" = "$package" ]; then
    missing+=("$package")
  elif is_available "$package" || ! has_lists; then
    optional+=("$package")
  fi
done
if [ $((${#missing[@]} + ${#optional[@]})) -eq 0 ]; then
  exit 0
fi

echo "installing: ${missing[*]} ${optional[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "needs root (or sudo) to install: ${missing[*]} ${optional[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -qq
for package in "${optional[@]}"; do
  if is_available "$package"; then missing+=("$package"); fi
done
[ ${#missing[@]} -gt 0 ] || exit 0
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
