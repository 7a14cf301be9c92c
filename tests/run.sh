#!/usr/bin/env bash
# Everything in one go: installs what is missing, builds, runs all tests but those labelled exhaustive; then the unit
# tests once more under AddressSanitizer + UndefinedBehaviorSanitizer, and those that run ranks under ThreadSanitizer.
#
#   tests/run.sh            all of it
#   tests/run.sh default    one of default, asan, tsan
set -euo pipefail
cd "$(dirname "$0")/.."

# two_nodes_test makes network namespaces; page_test looks at a page in a browser. Where they cannot be had, both skip.
examples/install.sh iproute2 'chromium?'

export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1

run_preset() {
  local preset=$1 target=$2
  shift 2
  echo "== $preset: build"
  # The build without sanitizers shows that every source compiles alone.
  local unity=OFF
  [ "$preset" = default ] || unity=ON
  # Kernels for one kind of GPU; tests/kernel_resources.sh and a release compile them for all.
  cmake --preset "$preset" -DSIXFOLD_PCH=ON -DSIXFOLD_UNITY=$unity -DCMAKE_CUDA_ARCHITECTURES=90 >/dev/null
  cmake --build --preset "$preset" --target "$target"
  echo "== $preset: test"
  (cd "$(build_folder "$preset")" && ctest --parallel 2 --output-on-failure "$@")
}

build_folder() {
  if [ "$1" = default ]; then echo build; else echo "build-$1"; fi
}

# Sanitizers watch the unit tests, which reach everything but the programs' own code; ThreadSanitizer only those that run
# ranks or threads. Both builds are without MPI and without CUDA, and so show that neither is needed.
for preset in ${1:-default asan tsan}; do
  case $preset in
    default) run_preset default all --label-exclude exhaustive ;;
    asan) run_preset "$preset" unit_tests --label-exclude "programs|exhaustive|product" ;;
    tsan) run_preset "$preset" rank_tests --label-exclude "programs|exhaustive|pure|product" ;;
    *) echo "unknown: $preset (allowed: default, asan, tsan)" >&2; exit 2 ;;
  esac
done
