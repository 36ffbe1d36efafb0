"""A training script that asks of the model what nanoGPT's train.py asks, in the same order.

Run by test_script.py in processes of its own: `script.py OUT ENGINE STEPS [resume] [compile]`, or
by torchrun for several processes.
"""

import os
import pickle
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

from tiny_gpt import GPTConfig
from tiny_gpt import TinyGPT as GPT

out, engine, steps = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
resume, compiled = "resume" in sys.argv, "compile" in sys.argv
device = device_type = "cpu"
block_size, batch_size, accumulation = 32, 8, 2

ddp = int(os.environ.get("RANK", -1)) != -1
rank = 0
if ddp:
    init_process_group(backend="gloo")
    rank = int(os.environ["RANK"])
    accumulation //= int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
torch.manual_seed(1337 + rank)
ctx = nullcontext()


def get_batch(split):
    # A new memory map every time, as nanoGPT has it.
    data = np.memmap(out / f"{split}.bin", dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack(
        [torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in ix]
    )
    return x.to(device), y.to(device)


meta = pickle.loads((out / "meta.pkl").read_bytes())
model_args = dict(
    n_layer=2,
    n_head=2,
    n_embd=32,
    block_size=block_size,
    bias=False,
    vocab_size=meta["vocab_size"],
    dropout=float(os.environ.get("DROPOUT", 0.0)),
)
iter_num, best_val_loss = 0, 1e9
if resume:
    checkpoint = torch.load(out / "ckpt.pt", map_location=device, weights_only=False)
    model_args = checkpoint["model_args"]
gptconf = GPTConfig(**model_args)
gptconf.engine, gptconf.dtype = engine, "f32"
model = GPT(gptconf)
if resume:
    state_dict = checkpoint["model"]
    for k in list(state_dict):
        if k.startswith("_orig_mod."):
            state_dict[k[len("_orig_mod.") :]] = state_dict.pop(k)
    model.load_state_dict(state_dict)
    iter_num, best_val_loss = checkpoint["iter_num"], checkpoint["best_val_loss"]
if block_size < model.config.block_size:
    model.crop_block_size(block_size)
model.to(device)
scaler = torch.amp.GradScaler(device, enabled=False)
optimizer = model.configure_optimizers(1e-1, 1e-3, (0.9, 0.99), device_type)
if resume:
    optimizer.load_state_dict(checkpoint["optimizer"])
if compiled:
    model = torch.compile(model)
if ddp:
    model = DDP(model)
raw_model = model.module if ddp else model


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = torch.zeros(4)
    for k in range(4):
        X, Y = get_batch("val")
        with ctx:
            logits, loss = model(X, Y)
        losses[k] = loss.item()
    model.train()
    return losses.mean()


X, Y = get_batch("train")
loss_of_step = 0.0
while True:
    if iter_num % 10 == 0:
        val_loss = estimate_loss()
        if rank == 0:
            print(f"step {iter_num}: val loss {val_loss:.6f}")
            best_val_loss = val_loss
            torch.save(
                {
                    "model": raw_model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "model_args": model_args,
                    "iter_num": iter_num,
                    "best_val_loss": best_val_loss,
                    "config": {"batch_size": batch_size},
                },
                out / "ckpt.pt",
            )
    if iter_num >= steps:
        break
    for micro_step in range(accumulation):
        if ddp:
            model.require_backward_grad_sync = micro_step == accumulation - 1
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / accumulation
        X, Y = get_batch("train")
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    lossf = loss.item() * accumulation
    print(f"iter {iter_num}: loss {lossf:.6f} rank {rank}")
    raw = getattr(raw_model, "_orig_mod", raw_model)
    raw.estimate_mfu(batch_size * accumulation, 1.0)
    iter_num += 1
if ddp:
    checksum = float(sum(p.detach().double().sum() for p in model.parameters()))
    print(f"checksum {checksum!r}")
    destroy_process_group()
