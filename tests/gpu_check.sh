#!/usr/bin/env bash
# Everything that needs a GPU, on a machine that has one: CUDA, CMake and Ninja are enough, ranks are threads.
#
#   tests/gpu_check.sh                  correctness, then speed
#   tests/gpu_check.sh correctness      one of correctness, speed; each ends within 4 minutes, the build included
#   tests/gpu_check.sh --no-gpu         rehearsal: builds, prints what it would run, and sees that programs without a GPU
#                                       say so
#
# Results go to OUT (default: out/gpu_check): a log and JSON a stage, and summary.txt, which is printed last. A stage
# that fails does not stop the others; the exit status is 1 if any has.
set -uo pipefail
cd "$(dirname "$0")/.."

part=all gpu=yes
for argument in "$@"; do
  case $argument in
    correctness | speed) part=$argument ;;
    --no-gpu) gpu=no ;;
    *) echo "unknown: $argument (allowed: correctness, speed, --no-gpu)" >&2; exit 2 ;;
  esac
done
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}  # one GPU: ranks share it
out=${OUT:-out/gpu_check} build=${BUILD:-build-gpu}
mkdir -p "$out"
summary=$out/summary.txt
: > "$summary"
failed=0

note() {  # STAGE VERDICT SECONDS
  printf '%-34s %-6s %4d s\n' "$1" "$2" "$3" >> "$summary"
  if [ "$2" = FAILED ]; then failed=1; fi
}

stage() {  # NAME SECONDS COMMAND...: with a limit of its own; its output is NAME.log
  local name=$1 limit=$2 start=$SECONDS
  shift 2
  echo "== $name: $*"
  if timeout "$limit" "$@" > "$out/$name.log" 2>&1; then
    note "$name" passed $((SECONDS - start))
  else
    tail -n 15 "$out/$name.log"
    note "$name" FAILED $((SECONDS - start))
  fi
}

on_gpu() {  # a stage that is only printed where there is no GPU
  if [ "$gpu" = yes ]; then
    stage "$@"
  else
    echo "would run $1 (limit $2 s): ${*:3}"
    printf '%-34s %-6s\n' "$1" "(none)" >> "$summary"
  fi
}

all_gpus() {  # a stage for all GPUs of the machine
  CUDA_VISIBLE_DEVICES=$every_gpu on_gpu "$@"
}

perf=$build/collective_perf
num_gpus=0
if [ "$gpu" = yes ]; then num_gpus=$(nvidia-smi -L 2> /dev/null | wc -l); fi
every_gpu=$(seq -s, 0 $((num_gpus > 0 ? num_gpus - 1 : 0)))

build_all() {
  stage configure 60 cmake -S . -B "$build" -G Ninja -DSIXFOLD_CUDA=ON -DSIXFOLD_MPI=AUTO
  stage build 220 cmake --build "$build" --target collective_perf device_test lowering_test lowered_machine_test \
    meeting_test mode_test piece_cuts_test staged_group_test staged_failures_test peer_group_test low_latency_test \
    ring_by_hand_test nccl_test ring_yardstick
}

# Every operation in and out of place, each result compared with what arithmetic says. Sizes are odd: 12 bytes x 7^k.
correctness() {
  on_gpu probe 20 nvidia-smi
  local test
  for test in device lowering lowered_machine meeting mode piece_cuts staged_group staged_failures peer_group \
    low_latency ring_by_hand nccl; do
    stage "${test}_test" 60 "$build/${test}_test"
  done
  local ranks dtype op
  for ranks in 2 4 8; do
    for dtype in f32 bf16 f16 i32 i64 u8; do
      on_gpu "all_n${ranks}_${dtype}" 30 "$perf" --device cuda --ranks "$ranks" --op all --dtype "$dtype" \
        --min-bytes 12 --max-bytes 30000000 --factor 7 --rounds 1 --warmup 0 --iters 1 --timeout 20
    done
    for op in ring tree double_tree recursive_doubling halving_doubling direct; do
      on_gpu "all_reduce_n${ranks}_${op}" 30 "$perf" --device cuda --ranks "$ranks" --algorithm "$op" --dtype bf16 \
        --min-bytes 12 --max-bytes 30000000 --factor 7 --rounds 1 --warmup 0 --iters 1 --timeout 20
    done
    for op in min max prod avg; do
      on_gpu "all_reduce_n${ranks}_${op}" 30 "$perf" --device cuda --ranks "$ranks" --redop "$op" --algorithm ring \
        --min-bytes 12 --max-bytes 3000000 --factor 7 --rounds 1 --warmup 0 --iters 1 --timeout 20
    done
  done
  # Through the host: pieces are 1 MiB, so the larger sizes have many.
  for ranks in 2 4; do
    for dtype in f32 bf16 u8; do
      on_gpu "staged_n${ranks}_${dtype}" 40 "$perf" --device cuda --gpu-mode staged --ranks "$ranks" --op all \
        --dtype "$dtype" --min-bytes 12 --max-bytes 30000000 --factor 7 --rounds 1 --warmup 0 --iters 1 --timeout 20
    done
    for op in ring direct; do
      on_gpu "staged_n${ranks}_${op}" 30 "$perf" --device cuda --gpu-mode staged --ranks "$ranks" --algorithm "$op" \
        --dtype bf16 --min-bytes 12 --max-bytes 30000000 --factor 7 --rounds 1 --warmup 0 --iters 1 --timeout 20
    done
  done
  on_gpu staged_progress_threads 30 "$perf" --device cuda --gpu-mode staged --ranks 2 --progress-thread on --op all \
    --min-bytes 12 --max-bytes 30000000 --factor 7 --rounds 1 --warmup 0 --iters 1 --timeout 20
  # The host steps through launches of slices: threads first, then processes, which open one another's memory by handle.
  for ranks in 2 4; do
    on_gpu "stepped_n$ranks" 60 "$perf" --device cuda --gpu-mode stepped --ranks "$ranks" --op all --dtype bf16 \
      --min-bytes 12 --max-bytes 30000000 --factor 7 --rounds 1 --warmup 0 --iters 1 --timeout 20
  done
  # A launch for each rank, which needs a GPU for each rank: all that there are, of which the others see the first only.
  if [ "$num_gpus" -gt 1 ]; then
    for dtype in f32 bf16 i64 u8; do
      all_gpus "peer_n${num_gpus}_$dtype" 60 "$perf" --device cuda --gpu-mode peer --ranks "$num_gpus" --op all \
        --dtype "$dtype" --min-bytes 12 --max-bytes 30000000 --factor 7 --rounds 1 --warmup 0 --iters 1 --timeout 20
    done
  else
    printf '%-34s %-6s\n' "peer: needs two GPUs" "(none)" >> "$summary"
  fi
  if command -v mpirun > /dev/null && grep -q '^MPI_C_HEADER_DIR:PATH=/' "$build/CMakeCache.txt"; then
    local mode
    for mode in staged stepped; do
      on_gpu "${mode}_processes" 60 mpirun -n 2 --oversubscribe --allow-run-as-root "$perf" --device cuda \
        --gpu-mode "$mode" --op all --min-bytes 12 --max-bytes 30000000 --factor 7 --rounds 1 --warmup 0 --iters 1 \
        --timeout 20
    done
    if [ "$num_gpus" -gt 1 ]; then
      all_gpus peer_processes 60 mpirun -n 2 --oversubscribe --allow-run-as-root "$perf" --device cuda --gpu-mode peer \
        --op all --min-bytes 12 --max-bytes 30000000 --factor 7 --rounds 1 --warmup 0 --iters 1 --timeout 20
    fi
  else
    printf '%-34s %-6s\n' "processes: no MPI" "(none)" >> "$summary"
  fi
  on_gpu memcheck 60 compute-sanitizer --error-exitcode 1 "$perf" --device cuda --ranks 2 --op all --min-bytes 12 \
    --max-bytes 4096 --factor 7 --rounds 1 --warmup 0 --iters 1
  # NCCL refuses two ranks on one GPU.
  on_gpu nccl_n1 30 "$perf" --device cuda --ranks 1 --comm nccl --op all --max-bytes 1048576 --rounds 1
  if [ "$gpu" = no ]; then
    stage says_so_and_uses_the_cpu 30 "$perf" --device auto --ranks 2 --max-bytes 1024 --rounds 1
    grep -q "no GPU to use" "$out/says_so_and_uses_the_cpu.log" || note auto_names_the_reason FAILED 0
    "$perf" --gpu-mode staged --ranks 2 > "$out/mode_refused.log" 2>&1
    if [ $? -eq 2 ] && grep -q -- "--gpu-mode staged" "$out/mode_refused.log"; then
      note mode_is_refused_by_name passed 0
    else
      note mode_is_refused_by_name FAILED 0
    fi
    "$perf" --device cuda --ranks 2 > "$out/refused.log" 2>&1
    if [ $? -eq 2 ] && grep -q -- "--device cuda" "$out/refused.log"; then
      note cuda_is_refused_by_name passed 0
    else
      note cuda_is_refused_by_name FAILED 0
    fi
  fi
}

# %mem is the share of a copy inside the GPU's memory, measured in the same run, with the 2 N S bytes that an all-reduce
# of N ranks on one GPU must move.
speed() {
  local ranks
  for ranks in 2 4 8; do
    on_gpu "speed_direct_n$ranks" 60 "$perf" --device cuda --ranks "$ranks" --algorithm direct --min-bytes 1024 \
      --max-bytes 1073741824 --factor 4 --json "$out/direct_n$ranks.json"
  done
  on_gpu speed_ring_n4 60 "$perf" --device cuda --ranks 4 --algorithm ring --min-bytes 1024 --max-bytes 268435456 \
    --factor 4 --json "$out/ring_n4.json"
  on_gpu speed_staged_n2 40 "$perf" --device cuda --gpu-mode staged --ranks 2 --min-bytes 1024 --max-bytes 268435456 \
    --factor 4 --json "$out/staged_n2.json"
  # How close the interpreter of lists comes to a ring written by hand.
  on_gpu speed_ring_yardstick 60 "$build/ring_yardstick"
  on_gpu speed_stepped_n2 40 "$perf" --device cuda --gpu-mode stepped --ranks 2 --min-bytes 1024 --max-bytes 268435456 \
    --factor 4 --json "$out/stepped_n2.json"
  if [ "$num_gpus" -gt 1 ]; then
    all_gpus "speed_peer_n$num_gpus" 60 "$perf" --device cuda --gpu-mode peer --ranks "$num_gpus" --min-bytes 1024 \
      --max-bytes 1073741824 --factor 4 --json "$out/peer.json"
  fi
  on_gpu speed_nccl_n1 30 "$perf" --device cuda --ranks 1 --comm nccl --min-bytes 1048576 --max-bytes 67108864 \
    --json "$out/nccl_n1.json"
}

build_all
if [ "$part" != speed ]; then correctness; fi
if [ "$part" != correctness ]; then speed; fi
echo
cat "$summary"
exit $failed
