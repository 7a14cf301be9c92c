#!/usr/bin/env bash
# Our all-reduce beside Open MPI's with its defaults, and with the settings that are best for each size. Open MPI takes
# settings from mpirun's command line, so each set of them is a run of its own, over all sizes, by collective_perf
# --versus mpi, in which ours and MPI's take turns:
#
#   1. every set once
#   2. the defaults and, of each size, the two sets that came nearest to ours, three times in turn; medians decide
#
# Sets are ranked by the ratio to ours in the same run, since runs meet the machine in different states. Columns: us for
# one operation in place, fresh data; `ours` and `best/ours` are of the runs with the best set.
#
#   examples/collective_perf/best_mpi.sh [-n RANKS] [--min-bytes B] [--max-bytes B] [--factor F] [--settings FILE]
#                                        [--build FOLDER]
#
# --settings: sets to try, one a line as mpirun takes them ("-mca btl_vader_eager_limit 65536"); default: algorithms of
# the all-reduce times transports in shared memory, some 50 sets, which take some 5 minutes with 2 ranks.
set -euo pipefail
cd "$(dirname "$0")/../.."

ranks=2 build=build settings=
min_bytes=1024 max_bytes=67108864 factor=4
while [ $# -gt 0 ]; do
  case $1 in
    -n) ranks=${2:?-n needs a number of ranks}; shift 2 ;;
    --min-bytes) min_bytes=${2:?--min-bytes needs a number}; shift 2 ;;
    --max-bytes) max_bytes=${2:?--max-bytes needs a number}; shift 2 ;;
    --factor) factor=${2:?--factor needs a number}; shift 2 ;;
    --settings) settings=${2:?--settings needs a file}; shift 2 ;;
    --build) build=${2:?--build needs a build folder}; shift 2 ;;
    *)
      echo "unknown: $1 (allowed: -n, --min-bytes, --max-bytes, --factor, --settings, --build)" >&2
      exit 2
      ;;
  esac
done

fail() {
  echo "error: $*" >&2
  exit 1
}
version=$(mpirun --version 2>/dev/null | head -n 1) || true
[[ $version == *"Open MPI"* ]] || fail "needs the mpirun of Open MPI, whose settings these are; found: ${version:-none}"
[ -x "$build/collective_perf" ] ||
  fail "no $build/collective_perf: cmake --preset default && cmake --build --preset default --target collective_perf"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

default_settings() {
  local transport algorithm
  local tuned="-mca coll_tuned_use_dynamic_rules 1 -mca coll_tuned_allreduce_algorithm"
  local segment="-mca coll_tuned_allreduce_algorithm_segmentsize"
  for transport in "" \
    "-mca btl_vader_single_copy_mechanism none" \
    "-mca btl_vader_max_send_size 1048576" \
    "-mca btl_vader_fbox_size 65536 -mca btl_vader_eager_limit 16384" \
    "-mca btl_vader_eager_limit 65536 -mca btl_vader_max_send_size 262144" \
    "-mca btl_vader_single_copy_mechanism none -mca btl_vader_eager_limit 65536 -mca btl_vader_max_send_size 262144"; do
    for algorithm in "" "$tuned 1" "$tuned 2" "$tuned 3" "$tuned 4" "$tuned 5 $segment 65536" \
      "$tuned 5 $segment 1048576" "$tuned 6"; do
      echo "$transport $algorithm"
    done
  done
}
if [ -n "$settings" ]; then
  grep -v '^ *$' "$settings" >"$scratch/sets" || fail "--settings $settings: no such file, or nothing in it"
else
  default_settings | grep -v '^ *$' >"$scratch/sets"
fi
mapfile -t sets < <(echo; cat "$scratch/sets")  # set 0: the defaults

# measure SET ROUNDS: one line "size set ours mpi ratio" for each size.
measure() {
  # shellcheck disable=SC2086 # a set is words
  mpirun -n "$ranks" --oversubscribe --bind-to none --allow-run-as-root ${sets[$1]} "$build/collective_perf" --fresh \
    --versus mpi --warmup 1 --rounds "$2" --min-bytes "$min_bytes" --max-bytes "$max_bytes" --factor "$factor" \
    >"$scratch/table" 2>&1 </dev/null || return 1
  awk -v set="$1" '!/^#/ && NF == 20 { print $1, set, $14, $18, $19 }' "$scratch/table"
}

# Lines "size set ours mpi ratio", the smallest ratio of each size first. Where subtracting the cycle without the
# operation has left nothing, there is none.
by_ratio() {
  awk '$3 > 0 && $4 > 0' | sort -k 1,1n -k 5,5g
}

# first N: of lines that by_ratio has ordered, the first N of each size.
first() {
  awk -v n="$1" 'count[$1]++ < n'
}

# Of lines "size set ours mpi ratio", one a size and set: the medians of ours, mpi and ratio.
medians() {
  awk '
    function median(values, n, sorted) {
      n = split(values, sorted, " ")
      for (i = 2; i <= n; ++i)
        for (j = i; j > 1 && sorted[j] + 0 < sorted[j - 1] + 0; --j) {
          swap = sorted[j]; sorted[j] = sorted[j - 1]; sorted[j - 1] = swap
        }
      return sorted[int((n + 1) / 2)]
    }
    { key = $1 " " $2; ours[key] = ours[key] " " $3; mpi[key] = mpi[key] " " $4; ratio[key] = ratio[key] " " $5 }
    END { for (key in ours) print key, median(ours[key]), median(mpi[key]), median(ratio[key]) }'
}

for set in "${!sets[@]}"; do
  if measure "$set" 3 >>"$scratch/first"; then
    [ "$set" -ne 0 ] || grep '^# .* cores' "$scratch/table"
  elif [ "$set" -eq 0 ]; then
    fail "with Open MPI's defaults: $(grep -m 1 '[a-z]' "$scratch/table" || true)"
  else
    echo "# left out, for it fails: ${sets[$set]}: $(grep -m 1 '[a-z]' "$scratch/table" || true)"
  fi
done
shortlist=$(awk '$2 != 0' "$scratch/first" | by_ratio | first 2 | cut -d ' ' -f 2 | sort -nu)
for _ in 1 2 3; do
  for set in 0 $shortlist; do
    measure "$set" 7 || fail "a set that ran before: ${sets[$set]}: $(cat "$scratch/table")"
  done
done >"$scratch/second"

medians <"$scratch/second" >"$scratch/medians"
printf '# all_reduce, %d ranks; %d sets of settings\n' "$ranks" "${#sets[@]}"
printf '# %10s %10s %10s %10s %10s  %s\n' bytes ours MPI "best MPI" best/ours settings
by_ratio <"$scratch/medians" | first 1 >"$scratch/best"
while read -r size set ours mpi ratio; do
  default=$(awk -v size="$size" '$1 == size && $2 == 0 { print $4 }' "$scratch/medians")
  printf '  %10s %10.2f %10.2f %10.2f %10.2f  %s\n' "$size" "$ours" "$default" "$mpi" "$ratio" "${sets[$set]:-defaults}"
done <"$scratch/best"
