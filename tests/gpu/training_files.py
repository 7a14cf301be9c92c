#!/usr/bin/env python3
"""What tests/gpu_check.sh does with the files of training runs. Needs Python alone.

  training_files.py tokens FILE COUNT VOCABULARY     random tokens below VOCABULARY, 16 bits each (--data-format u16)
  training_files.py like REFERENCE TOLERANCE LOG RUN...
                                                     runs train_gpt, RUN..., and compares the losses of all steps in its
                                                     --log LOG; exit status 1 where one is further from REFERENCE's than
                                                     TOLERANCE of that
  training_files.py speed LOG [PYTORCH]              tokens/s of a run, beside those of torch_yardstick.py
  training_files.py exposed LOG ALONE                how much of the communication of a run is exposed, where ALONE is of
                                                     the same run that communicates instead of computing

Logs are what train_gpt --log and torch_yardstick.py losses --log write.
"""

import array
import json
import random
import subprocess
import sys


def write_tokens(path, count, vocabulary):
    draw = random.Random(1)
    tokens = array.array("H", (draw.randrange(vocabulary) for _ in range(count)))
    if sys.byteorder == "big":
        tokens.byteswap()
    with open(path, "wb") as file:
        tokens.tofile(file)


def read_log(path):
    """Losses by step, and the summary (empty where the log has none)."""
    losses, summary = {}, {}
    with open(path) as file:
        for line in file:
            entry = json.loads(line)
            if "step" in entry:
                losses[entry["step"]] = entry["loss"]
            else:
                summary = entry["summary"]
    return losses, summary


def run_like(reference_path, tolerance, path, run):
    if subprocess.run(run + ["--log", path]).returncode != 0:
        return 1
    losses, reference = read_log(path)[0], read_log(reference_path)[0]
    if not losses or losses.keys() != reference.keys():
        sys.exit(f"{path} has {len(losses)} steps, {reference_path} has {len(reference)}")
    worst = 0.0
    for step, expected in sorted(reference.items()):
        loss = losses[step]
        # null in a log: not finite
        error = float("inf") if None in (loss, expected) else abs(loss - expected) / abs(expected)
        worst = max(worst, error)
        print(f"step {step:3}  {loss}  {expected}  off by {error:.1e}{'' if error <= tolerance else '  TOO FAR'}")
    print(f"largest: {worst:.1e}, allowed: {tolerance:.1e}")
    return 0 if worst <= tolerance else 1


def speed(path, pytorch_path=None):
    summary = read_log(path)[1]
    communication, step_ms = summary["communication"], summary["mean_step_ms"]
    print(f"{summary['tokens_per_s']:.0f} tokens/s, {summary['step_ms']:.2f} ms a step, {summary['ranks']} ranks, "
          f"{summary['strategy']}, mfu {summary['mfu']:.3f}")
    print(f"communication {communication['ms_per_step']:.2f} ms a step, of which it stood in the way for "
          f"{communication['exposed_ms_per_step']:.2f} ms: {100 * communication['exposed_ms_per_step'] / step_ms:.1f}%")
    if pytorch_path:
        with open(pytorch_path) as file:
            pytorch = json.load(file)["tokens_per_s"]
        print(f"PyTorch: {pytorch:.0f} tokens/s; ours are {summary['tokens_per_s'] / pytorch:.2f} times as many")


def exposed(path, alone_path):
    ours, alone = (read_log(log)[1]["communication"]["exposed_ms_per_step"] for log in (path, alone_path))
    print(f"exposed: {ours:.2f} of {alone:.2f} ms a step, {100 * ours / alone:.1f}%" if alone > 0 else "exposed: nothing")


def main(arguments):
    if len(arguments) == 4 and arguments[0] == "tokens":
        return write_tokens(arguments[1], int(arguments[2]), int(arguments[3]))
    if len(arguments) > 4 and arguments[0] == "like":
        return run_like(arguments[1], float(arguments[2]), arguments[3], arguments[4:])
    if len(arguments) in (2, 3) and arguments[0] == "speed":
        return speed(*arguments[1:])
    if len(arguments) == 3 and arguments[0] == "exposed":
        return exposed(*arguments[1:])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
