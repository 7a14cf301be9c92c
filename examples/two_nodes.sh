#!/usr/bin/env bash
# Two hosts on one machine: two network namespaces with a host name each, joined by a shaped virtual cable. For Open MPI
# and for Sixfold they are two hosts: two ranks on each share memory, what goes between the hosts is TCP at --rate.
# Checks the collectives, times all_reduce against MPI's own, and trains a few steps, on 2 + 2 ranks.
#
#   examples/two_nodes.sh [--rate 1gbit] [--run-only BUILD]
#
# --rate: as tc(8) takes it. --run-only: installs and builds nothing, takes the programs of that folder. Needs root;
# where it cannot run, it prints "SKIPPED: " and the reason, and ends with exit code 0.
set -euo pipefail
cd "$(dirname "$0")/.."

rate=1gbit
run_only=no build=build
while [ $# -gt 0 ]; do
  case $1 in
    --rate) rate=${2:?--rate needs a value, such as 1gbit}; shift 2 ;;
    --run-only) run_only=yes build=${2:?--run-only needs a build folder}; shift 2 ;;
    *) echo "unknown: $1 (allowed: --rate RATE, --run-only BUILD)" >&2; exit 2 ;;
  esac
done

skip() {
  echo "SKIPPED: $*"
  exit 0
}
[ "$(id -u)" -eq 0 ] || skip "network namespaces need root"

if [ $run_only = no ]; then
  examples/install.sh iproute2
  cmake --preset default >/dev/null
  cmake --build --preset default --target collective_perf train_gpt
fi
for program in ip tc unshare mpirun; do
  command -v $program >/dev/null || skip "no $program"
done

# Names that no other run uses; addresses of a block that is for tests (RFC 5737).
first=sixfold-$$-a second=sixfold-$$-b
first_address=192.0.2.1 second_address=192.0.2.2
scratch=$(mktemp -d)

clean_up() {
  local namespace
  for namespace in $first $second; do
    ip netns pids $namespace 2>/dev/null | xargs -r kill 2>/dev/null || true
    ip netns del $namespace 2>/dev/null || true  # and its end of the cable, which takes the other along
  done
  rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# Runs a command, and skips with its own words when the system does not let us.
try() {
  "$@" 2>"$scratch/refusal" || skip "$*: $(cat "$scratch/refusal")"
}

try ip netns add $first
try ip netns add $second
try ip link add cable netns $first type veth peer name cable netns $second
for node in "$first $first_address" "$second $second_address"; do
  read -r namespace address <<<"$node"
  try ip -n $namespace address add $address/24 dev cable
  try ip -n $namespace link set lo up
  try ip -n $namespace link set cable up
  try tc -n $namespace qdisc add dev cable root tbf rate "$rate" burst 256kb latency 50ms
done
try ip netns exec $first unshare --uts true

# How mpirun starts its daemon on another host: instead of ssh, called as ssh is (host, then a command for a shell).
cat >"$scratch/agent" <<END
#!/bin/sh
[ "\$1" = $second_address ] || { echo "unknown host \$1" >&2; exit 1; }
shift
exec ip netns exec $second unshare --uts sh -c "hostname second; \$*"
END
chmod +x "$scratch/agent"

# As on a cluster, but for the agent, the network to use, and that all ranks share this machine's cores: MPI's waits are
# to yield, as ours do.
launch() {
  ip netns exec $first unshare --uts sh -c 'hostname first; exec "$@"' sh \
    mpirun -n 4 --host $first_address:2,$second_address:2 --allow-run-as-root --bind-to none \
    --mca plm_rsh_agent "$scratch/agent" --mca oob_tcp_if_include cable --mca btl_tcp_if_include cable \
    --mca mpi_yield_when_idle 1 "$@" </dev/null
}

echo "== two hosts, 2 ranks each, $rate between them"
launch hostname | sort | uniq -c
if [ -x "$build/comm_mpi_check" ]; then
  echo "== every collective, compared with arithmetic"
  launch "$build/comm_mpi_check" own
fi
echo "== all_reduce, ours and MPI's"
launch "$build/collective_perf" --op all_reduce --min-bytes 4096 --max-bytes 4194304 --factor 4 --rounds 5 --versus mpi
echo "== training"
launch "$build/train_gpt" --data runtime --steps 10 --layers 2 --dim 64 --seq-len 64 --threads 1 --sample 0
