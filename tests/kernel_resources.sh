#!/usr/bin/env bash
# Registers, spilled bytes and shared memory of every kernel, as ptxas counts them. Spills are an error.
#
#   tests/kernel_resources.sh [NVCC]        cmake --build build --target kernel_resources
set -euo pipefail
nvcc=${1:-nvcc}
cd "$(dirname "$0")/.."

report() {  # ARCH: one line a kernel
  local source
  for source in runtime/comm/cuda/device/*.cu kernels/cuda/*.cu; do
    "$nvcc" -std=c++20 -O3 --expt-relaxed-constexpr -I. -arch="$1" -cubin -o /dev/null -Xptxas -v "$source" 2>&1
  done | c++filt | awk -v arch="$1" '
    /Compiling entry function/ { split($0, part, "\x27"); name = part[2] }
    /spill stores/ { spilled = $5 + $9 }
    /Used [0-9]+ registers/ {
      match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
      shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH) + 0 : 0
      printf "%-6s %9d %8d %7d  %s\n", arch, registers, spilled, shared, name
    }'
}

printf '%-6s %9s %8s %7s  %s\n' arch registers spilled shared kernel
{ report sm_80; report sm_90; } | awk '
  { print; ++num_kernels; if ($3 > 0) ++num_spilling }
  END {
    printf "%d kernels, %d of them spill registers\n", num_kernels, num_spilling
    exit num_spilling > 0 || num_kernels == 0
  }'
