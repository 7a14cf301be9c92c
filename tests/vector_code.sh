#!/bin/sh
# vector_code.sh PROGRAM: whether the compiler made vector code of the reductions in PROGRAM, for both widths: sums of
# floats (f32, and bf16 and f16, which are added as f32), sums of i32, and the widening of 16-bit elements.
set -eu
disassembly=$(mktemp)
trap 'rm -f "$disassembly"' EXIT
objdump -d --no-show-raw-insn "$1" > "$disassembly"
for cpu in avx512f avx2; do
  for instruction in vaddps vpaddd vpmovzxwd; do
    count=$(awk -v cpu="6reduce.*[.]$cpu>:" -v instruction="$instruction" '
      /^[0-9a-f]+ </ { inside = $0 ~ cpu }
      inside && $0 ~ "[ \t]" instruction "[ \t].*%[yz]mm" { ++count }
      END { print count + 0 }' "$disassembly")
    echo "$cpu $instruction: $count"
    [ "$count" -gt 0 ]
  done
done
