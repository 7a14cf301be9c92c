#!/usr/bin/env bash
# From nothing to a trained model: installs, builds, and trains a small GPT on two ranks, on text that every machine has
# after that: the C++ headers of Eigen, some 10 MB.
set -euo pipefail
cd "$(dirname "$0")/.."

examples/install.sh
cmake --preset default >/dev/null
cmake --build --preset default --target train_gpt

launch=(mpirun -n 2 --oversubscribe --bind-to none)
if [ "$(id -u)" -eq 0 ]; then
  launch+=(--allow-run-as-root)
fi
"${launch[@]}" build/train_gpt --data /usr/include/eigen3 --sample 400
