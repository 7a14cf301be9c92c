#!/usr/bin/env bash
# Installs what Sixfold needs to build and run, from Debian's or Ubuntu's packages; nothing when all of it is there.
# Further package names may be given. Uses sudo when not root.
set -euo pipefail

packages=(cmake ninja-build g++ libopenmpi-dev openmpi-bin libeigen3-dev libspdlog-dev libgtest-dev libcli11-dev
  nlohmann-json3-dev libxxhash-dev "$@")

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

echo "installing: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "needs root (or sudo) to install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
