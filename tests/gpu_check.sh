#!/usr/bin/env bash
# Everything that needs a GPU, on a machine that has one: CUDA, CMake, Ninja and Python 3 are enough, ranks are threads.
# With PyTorch, training is compared with it.
#
#   tests/gpu_check.sh                  all of it
#   tests/gpu_check.sh training         a part: collectives, training, speed; correctness is the first two. Each of the
#                                       three is meant to end within 4 minutes
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
    collectives | training | correctness | speed) part=$argument ;;
    --no-gpu) gpu=no ;;
    *) echo "unknown: $argument (allowed: collectives, training, correctness, speed, --no-gpu)" >&2; exit 2 ;;
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

refuses() {  # NAME STATUS TEXT COMMAND...: it ends with that status, and says TEXT
  local name=$1 status=$2 text=$3
  shift 3
  "$@" > "$out/$name.log" 2>&1
  if [ $? -eq "$status" ] && grep -q -- "$text" "$out/$name.log"; then
    note "$name" passed 0
  else
    note "$name" FAILED 0
  fi
}

all_gpus() {  # a stage for all GPUs of the machine
  CUDA_VISIBLE_DEVICES=$every_gpu on_gpu "$@"
}

perf=$build/collective_perf train=$build/train_gpt
num_gpus=0
configuration=(-DSIXFOLD_CUDA=ON -DSIXFOLD_MPI=AUTO)
if [ "$gpu" = yes ]; then
  num_gpus=$(nvidia-smi -L 2> /dev/null | wc -l)
  architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -n 1 | tr -d '. ')
  if [ -n "$architecture" ]; then configuration+=("-DCMAKE_CUDA_ARCHITECTURES=$architecture"); fi
fi
have_torch=no
if python3 -c 'import torch' 2> /dev/null; then have_torch=yes; fi
every_gpu=$(seq -s, 0 $((num_gpus > 0 ? num_gpus - 1 : 0)))

build_all() {
  stage configure 60 cmake -S . -B "$build" -G Ninja "${configuration[@]}"
  stage build 220 cmake --build "$build" --target collective_perf device_test lowering_test lowered_machine_test \
    meeting_test mode_test piece_cuts_test staged_group_test staged_failures_test peer_group_test low_latency_test \
    ring_by_hand_test nccl_test ring_yardstick train_gpt kernel_cases kernel_speed
}

# Every operation in and out of place, each result compared with what arithmetic says. Sizes are odd: 12 bytes x 7^k.
collectives() {
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
    refuses mode_is_refused_by_name 2 "--gpu-mode staged" "$perf" --gpu-mode staged --ranks 2
    refuses cuda_is_refused_by_name 2 "--device cuda" "$perf" --device cuda --ranks 2
    refuses ring_yardstick_without_a_gpu 1 "no driver\|no GPU\|cuda" "$build/ring_yardstick"
  fi
}

files=tests/gpu/training_files.py
model=(--data README.md --data-format text --val-fraction 0 --no-shuffle --layers 4 --heads 4 --dim 128 --seq-len 128
  --global-batch 8 --warmup 0 --no-gemm-rate --sample 0)
twenty_steps=("${model[@]}" --steps 20 --lr 5e-4 --min-lr 5e-4)

# Name and options of runs that must have the losses of one rank.
layouts=(
  "n1 --ranks 1"
  "ddp_n2 --ranks 2 --micro-batch 2"
  "ddp_n4 --ranks 4"
  "zero1_n2 --ranks 2 --zero 1"
  "zero2_n2 --ranks 2 --zero 2 --micro-batch 2"
  "zero3_n2 --ranks 2 --zero 3"
  "zero3_n4 --ranks 4 --zero 3 --prefetch 2 --recompute"
  "tp_n2 --ranks 2 --tp 2"
  "tp_n4 --ranks 4 --tp 4"
  "megatron_n2 --ranks 2 --tp 2 --sequence-parallel megatron"
  "sp_n2 --ranks 2 --sp 2"
  "sp_n4 --ranks 4 --sp 4"
  "pp_n2 --ranks 2 --pp 2 --micro-batch 2"
  "pp_n4 --ranks 4 --pp 4 --micro-batch 2"
  "dp2xtp2_zero1 --ranks 4 --tp 2 --sequence-parallel megatron --zero 1"
  "dp2xsp2_zero3 --ranks 4 --sp 2 --zero 3"
  "pp2xtp2 --ranks 4 --pp 2 --tp 2 --micro-batch 2"
  "pp2xdp2_interleaved --ranks 4 --pp 2 --pp-schedule interleaved --micro-batch 2"
)

same_losses() {  # RUNNER NAME TOLERANCE REFERENCE COMMAND...: writes NAME.jsonl; losses are those in REFERENCE.jsonl
  "$1" "$2" 40 python3 "$files" like "$out/$4.jsonl" "$3" "$out/$2.jsonl" "${@:5}"
}

torch_losses() {  # RUNNER DEVICE DTYPE TOLERANCE: of train_gpt and of PyTorch, from the same weights
  local run=(--device "$2" --dtype "$3")
  "$1" "start_$3" 30 "$train" "${model[@]}" "${run[@]}" --steps 1 --lr 0 --min-lr 0 --dump "$out/start_$3.safetensors"
  "$1" "torch_$3" 60 python3 tests/gpu/torch_yardstick.py losses "${run[@]}" --data README.md --weights \
    "$out/start_$3.safetensors" --heads 4 --rows 8 --steps 20 --lr 5e-4 --log "$out/torch_$3.jsonl"
  same_losses "$1" "like_torch_$3" "$4" "torch_$3" "$train" "${twenty_steps[@]}" "${run[@]}"
}

# Every kernel, then every strategy, in f32 and bf16, against one rank on the CPU; dropout has the same masks everywhere.
training() {
  on_gpu kernel_cases 60 "$build/kernel_cases"
  local run=("$train" "${twenty_steps[@]}" --dropout 0.1) layout options
  stage train_cpu 60 "${run[@]}" --device cpu --threads 1 --log "$out/train_cpu.jsonl"
  for layout in "${layouts[@]}"; do
    read -r -a options <<< "${layout#* }"
    same_losses on_gpu "f32_${layout%% *}" 1e-4 train_cpu "${run[@]}" --device cuda "${options[@]}"
    same_losses on_gpu "bf16_${layout%% *}" 1e-2 train_cpu "${run[@]}" --device cuda --dtype bf16 "${options[@]}"
  done
  local mode
  for mode in staged stepped; do
    same_losses on_gpu "f32_zero3_n2_$mode" 1e-4 train_cpu "${run[@]}" --device cuda --ranks 2 --zero 3 \
      --gpu-mode "$mode"
  done
  if [ "$num_gpus" -gt 1 ]; then
    same_losses all_gpus "f32_zero3_n${num_gpus}_peer" 1e-4 train_cpu "${run[@]}" --device cuda --ranks 2 --zero 3
  fi
  if [ "$have_torch" = no ]; then
    printf '%-34s %-6s\n' "losses of PyTorch: it is not there" "(none)" >> "$summary"
  elif [ "$gpu" = yes ]; then
    torch_losses on_gpu cuda f32 1e-4
    torch_losses on_gpu cuda bf16 1e-2
  else
    torch_losses stage cpu f32 1e-4
  fi
  on_gpu memcheck_training 60 compute-sanitizer --error-exitcode 1 "$train" --data README.md --data-format text \
    --device cuda --dtype bf16 --layers 1 --heads 1 --dim 32 --seq-len 32 --global-batch 2 --steps 1 --warmup 0 \
    --val-fraction 0 --no-gemm-rate --sample 0
  on_gpu memcheck_kernels 60 compute-sanitizer --error-exitcode 1 "$build/kernel_cases" \
    --gtest_filter='*/copies:*bits:*causal:*embedding:*layernorm_of*:*cross_entropy_of*:*batched*'
  if [ "$gpu" = no ]; then
    same_losses stage train_cpu_n2 1e-4 train_cpu "${run[@]}" --device cpu --ranks 2 --threads 1
    refuses training_refuses_cuda_by_name 2 "--device cuda" "$train" --device cuda
    refuses training_refuses_bf16_by_name 2 "--dtype bf16" "$train" --device cpu --dtype bf16
    refuses kernel_cases_without_a_gpu 2 "needs a GPU" "$build/kernel_cases"
    refuses kernel_speed_without_a_gpu 2 "needs a GPU" "$build/kernel_speed"
    PYTHONPYCACHEPREFIX=$out stage python_compiles 10 python3 -m py_compile tests/gpu/torch_yardstick.py "$files"
  fi
}

# GPT-2 124M on random tokens, in steps of 64 rows; figures of both runs, and PyTorch's beside them, end the summary.
training_speed() {
  local tokens=$out/tokens.bin rows=64 micro_rows=16 steps=20
  local run=("$train" --model gpt2-124m --device cuda --dtype bf16 --data "$tokens" --data-format u16 --val-fraction 0
    --no-shuffle --global-batch "$rows" --micro-batch "$micro_rows" --steps "$steps" --lr 5e-4 --min-lr 5e-4 --warmup 0
    --sample 0)
  rm -f "$out"/speed_train*.jsonl "$out/torch.json"  # figures are of this run
  on_gpu speed_kernels 40 "$build/kernel_speed"
  stage tokens 20 python3 "$files" tokens "$tokens" 2000000 50257
  on_gpu speed_train 60 "${run[@]}" --log "$out/speed_train.jsonl"
  on_gpu speed_train_ddp_n2 60 "${run[@]}" --ranks 2 --log "$out/speed_train_ddp_n2.jsonl"
  on_gpu speed_train_no_overlap 60 "${run[@]}" --ranks 2 --no-overlap --log "$out/speed_train_no_overlap.jsonl"
  if [ "$have_torch" = yes ]; then
    on_gpu speed_torch 100 python3 tests/gpu/torch_yardstick.py speed --data "$tokens" --rows "$rows" --micro-rows \
      "$micro_rows" --steps "$steps" --json "$out/torch.json"
  else
    printf '%-34s %-6s\n' "speed of PyTorch: it is not there" "(none)" >> "$summary"
  fi
  local name
  local -a pytorch=()
  if [ -e "$out/torch.json" ]; then pytorch=("$out/torch.json"); fi
  for name in speed_train speed_train_ddp_n2 speed_train_no_overlap; do
    if [ -e "$out/$name.jsonl" ]; then
      echo "$name:"
      python3 "$files" speed "$out/$name.jsonl" "${pytorch[@]}"
    fi >> "$summary" 2>&1
  done
  if [ -e "$out/speed_train_ddp_n2.jsonl" ] && [ -e "$out/speed_train_no_overlap.jsonl" ]; then
    python3 "$files" exposed "$out/speed_train_ddp_n2.jsonl" "$out/speed_train_no_overlap.jsonl" >> "$summary" 2>&1
  fi
}

# %mem is the share of a copy inside the GPU's memory, measured in the same run, with the 2 N S bytes that an all-reduce
# of N ranks on one GPU must move.
speed() {
  training_speed
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
case $part in collectives | correctness | all) collectives ;; esac
case $part in training | correctness | all) training ;; esac
case $part in speed | all) speed ;; esac
echo
cat "$summary"
exit $failed
