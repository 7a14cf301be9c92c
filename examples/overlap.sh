#!/usr/bin/env bash
# How much of its communication each strategy hides behind compute: two ranks on two cores, links paced so that
# communication takes about as long as backward. Prints the median step and its exposed communication, in ms, with links
# as fast as they are, with paced links and no overlap, and with both; and which share of the communication is hidden,
# by exposed time and by wall-clock. Takes a minute.
#
#   examples/overlap.sh [options of train_gpt]     --zero N and --emulate-links are set here
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
model="--layers 6 --dim 256 --heads 8 --seq-len 128 --global-batch 8 --steps 8 --val-fraction 0 --data /usr/include/eigen3"
links="--emulate-links intra=300,inter=25,scale=0.0008"

# median FIELD: over the steps of the log, without the first
median() {
  sed -n "/\"step\"/s/.*\"$1\":\([0-9.e-]*\).*/\1/p" "$log" | tail -n +2 | sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'
}

run() {
  build/train_gpt --ranks 2 --threads 1 --quiet --sample 0 --log "$log" $model "$@" >/dev/null
  echo "$(median step_ms) $(median exposed_comm_ms)"
}

printf '%-8s %12s %12s %12s %10s %10s\n' "" "free links" "no overlap" overlap hidden "by clock"
for zero in 0 1 2 3; do
  free=$(run --zero $zero "$@")
  off=$(run --zero $zero $links --no-overlap "$@")
  on=$(run --zero $zero $links "$@")
  echo "$zero $free $off $on" | awk '{
    printf "%-8s %6.0f (%3.0f) %6.0f (%3.0f) %6.0f (%3.0f) %9.0f%% %9.0f%%\n", $1 == 0 ? "ddp" : "zero" $1, $2, $3, $4, $5, $6,
           $7, 100 * (1 - $7 / $5), 100 * ($4 - $6) / ($4 - $2)}'
done
