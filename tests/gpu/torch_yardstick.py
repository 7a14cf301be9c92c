#!/usr/bin/env python3
"""GPT-2 in PyTorch, trained as train_gpt trains it: what that is measured against, on the same machine and data.

  train_gpt --model gpt2-124m --lr 0 --steps 1 --dump start.safetensors ...      the weights that both start from
  torch_yardstick.py losses --data FILE --weights start.safetensors --log FILE   losses of the first steps
  torch_yardstick.py speed --data FILE --json FILE                               tokens/s of GPT-2 124M

Both take --rows, --micro-rows, --steps, --lr as train_gpt takes --global-batch, --micro-batch, --steps, --lr: AdamW of a
constant rate, decay of matrices, clipping to norm 1, rows in the order of --no-shuffle --val-fraction 0. Data are 16-bit
tokens in a file that is named *.bin, else the bytes of a text. bf16 is autocast's: weights stay f32. speed runs under
torch.compile. Needs PyTorch 2 alone; exit status 2: no GPU (--device cpu does without).
"""

import argparse
import json
import math
import struct
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

WARM_UP_STEPS = 3


class Linear(nn.Module):
    """Stored [in, out], as GPT-2's published weights are."""

    def __init__(self, num_inputs, num_outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_inputs, num_outputs).normal_(std=0.02))
        self.bias = nn.Parameter(torch.zeros(num_outputs))

    def forward(self, x):
        return F.linear(x, self.weight.t(), self.bias)


class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.c_attn = Linear(dim, 3 * dim)
        self.c_proj = Linear(dim, dim)

    def forward(self, x):
        rows, length, dim = x.shape
        qkv = self.c_attn(x).view(rows, length, 3, self.num_heads, dim // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(out.transpose(1, 2).reshape(rows, length, dim))


class Mlp(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.c_fc = Linear(dim, 4 * dim)
        self.c_proj = Linear(4 * dim, dim)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, num_heads)
        self.ln_2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, num_layers, num_heads, dim, length, vocabulary):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, dim)
        self.wpe = nn.Embedding(length, dim)
        self.h = nn.ModuleList(Block(dim, num_heads) for _ in range(num_layers))
        self.ln_f = nn.LayerNorm(dim)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens, targets):
        """The mean loss of the targets, in nats."""
        x = self.wte(tokens) + self.wpe.weight
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def read_weights(path):
    """What train_gpt --dump has written as "weight.NAME", by NAME. Source: the format of safetensors."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    weights = {}
    for name, entry in header.items():
        if not name.startswith("weight."):
            continue
        begin = entry["data_offsets"][0]
        count = math.prod(entry["shape"])
        values = torch.frombuffer(data, dtype=torch.float32, count=count, offset=begin)
        weights[name.removeprefix("weight.")] = values.view(entry["shape"]).clone()
    return weights


def model_of_weights(path, num_heads):
    weights = read_weights(path)
    vocabulary, dim = weights["wte.weight"].shape
    num_layers = sum(name.endswith(".ln_1.weight") for name in weights)
    model = Gpt(num_layers, num_heads, dim, weights["wpe.weight"].shape[0], vocabulary)
    model.load_state_dict(weights)  # all names must be there, and no other
    return model


class Data:
    def __init__(self, path, length, num_rows):
        with open(path, "rb") as file:
            stored = bytearray(file.read())
        if path.endswith(".bin"):
            self.tokens = torch.frombuffer(stored, dtype=torch.int16).to(torch.int64) & 0xFFFF
        else:
            self.tokens = torch.frombuffer(stored, dtype=torch.uint8).to(torch.int64)
        self.length, self.num_rows = length, num_rows
        self.steps_per_epoch = (len(self.tokens) - 1) // length // num_rows
        if self.steps_per_epoch == 0:
            sys.exit(f"{path} has too few tokens for {num_rows} rows of {length}")

    def rows(self, step, first, count):
        """Tokens and targets of rows [first, first + count) of a step, which counts from 0."""
        begin = ((step % self.steps_per_epoch) * self.num_rows + first) * self.length
        end = begin + count * self.length
        shape = (count, self.length)
        return self.tokens[begin:end].view(shape), self.tokens[begin + 1 : end + 1].view(shape)


def make_optimizer(model, options):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=options.lr, betas=(0.9, 0.95), eps=1e-8, fused=options.device == "cuda")


def train(model, options, length):
    """Yields loss and seconds of each step."""
    data = Data(options.data, length, options.rows)
    optimizer = make_optimizer(model, options)
    parameters = list(model.parameters())
    run = torch.compile(model) if options.mode == "speed" else model
    num_micro = options.rows // options.micro_rows
    for step in range(options.steps):
        begin = time.perf_counter()
        total = torch.zeros((), device=options.device)
        for micro in range(num_micro):
            tokens, targets = data.rows(step, micro * options.micro_rows, options.micro_rows)
            tokens, targets = tokens.to(options.device), targets.to(options.device)
            with torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.dtype == "bf16"):
                loss = run(tokens, targets) / num_micro
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss = total.item()
        if options.device == "cuda":
            torch.cuda.synchronize()
        yield loss, time.perf_counter() - begin


def losses(options):
    model = model_of_weights(options.weights, options.heads).to(options.device)
    with open(options.log, "w") as log:
        for step, (loss, _) in enumerate(train(model, options, model.wpe.weight.shape[0]), 1):
            print(json.dumps({"step": step, "loss": loss}), file=log)


def speed(options):
    # The vocabulary of 50257 is padded, as train_gpt pads it.
    model = Gpt(12, 12, 768, options.seq_len, 50304).to(options.device)
    seconds = [s for _, s in train(model, options, options.seq_len)][WARM_UP_STEPS:]
    mean = sum(seconds) / len(seconds)
    result = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "dtype": options.dtype,
        "rows": options.rows,
        "micro_rows": options.micro_rows,
        "seq_len": options.seq_len,
        "steps": len(seconds),
        "tokens_per_s": options.rows * options.seq_len / mean,
        "step_ms": mean * 1e3,
        "median_step_ms": sorted(seconds)[len(seconds) // 2] * 1e3,
    }
    text = json.dumps(result)
    print(text)
    with open(options.json, "w") as file:
        print(text, file=file)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    of_losses, of_speed = modes.add_parser("losses"), modes.add_parser("speed")
    for mode in (of_losses, of_speed):
        mode.add_argument("--data", required=True)
        mode.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
        mode.add_argument("--dtype", choices=["f32", "bf16"], default="bf16")
        mode.add_argument("--rows", type=int, default=8, help="of a step")
        mode.add_argument("--micro-rows", type=int, help="of a micro-batch (default: all)")
        mode.add_argument("--steps", type=int, default=20)
        mode.add_argument("--lr", type=float, default=5e-4)
    of_losses.add_argument("--weights", required=True)
    of_losses.add_argument("--heads", type=int, required=True)
    of_losses.add_argument("--log", required=True)
    of_speed.add_argument("--seq-len", type=int, default=1024)
    of_speed.add_argument("--json", required=True)
    options = parser.parse_args()
    options.micro_rows = options.micro_rows or options.rows
    if options.rows % options.micro_rows != 0:
        parser.error(f"--micro-rows {options.micro_rows} does not divide --rows {options.rows}")
    if options.mode == "speed" and options.steps <= WARM_UP_STEPS:
        parser.error(f"--steps {options.steps}: the first {WARM_UP_STEPS} only warm up")
    return options


def main():
    options = parse_options()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("torch_yardstick needs a GPU (or --device cpu)", file=sys.stderr)
        return 2
    {"losses": losses, "speed": speed}[options.mode](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
