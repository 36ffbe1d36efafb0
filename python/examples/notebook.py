"""A tour of tiny_gpt, cell by cell (`# %%` is a cell in Jupyter's text notebooks and in editors).

As a program: python python/examples/notebook.py [steps]
"""

# %% A model small enough to watch
import sys
import tempfile

import torch

import tiny_gpt

steps = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 300
torch.manual_seed(1337)
text = tiny_gpt.tiny_shakespeare()
tokenizer = tiny_gpt.Tokenizer.from_text(text)
data = torch.tensor(tokenizer.encode(text))
config = tiny_gpt.GPTConfig(
    block_size=32, vocab_size=tokenizer.vocab_size, n_layer=2, n_head=2, n_embd=64
)
model = tiny_gpt.TinyGPT(config)
model.tokenizer = tokenizer


# %% Training it as any module
def batch(size=16):
    starts = torch.randint(len(data) - config.block_size - 1, (size,))
    windows = torch.stack([data[i : i + config.block_size + 1] for i in starts])
    return windows[:, :-1], windows[:, 1:]


optimizer = model.configure_optimizers(0.1, 3e-3, (0.9, 0.99), "cpu")
for step in range(steps + 1):
    _, loss = model(*batch())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

# %% What it writes
print(model.write("ROMEO:", 120, temperature=0.8, seed=1))

# %% What each head looks at: the share of its attention that goes to the token before
idx = torch.tensor([tokenizer.encode("To be, or not to be")])
seen = model.attention(idx)  # (L, B, H, T, T)
before = seen.diagonal(-1, -2, -1).mean((1, -1))  # (L, H)
for layer, heads in enumerate(before.tolist()):
    print(f"layer {layer}: " + ", ".join(f"head {h} {share:.2f}" for h, share in enumerate(heads)))

# %% How sure it is of each next character
p = model.logits(idx).softmax(-1)[0]  # (T, V)
for position in range(6):
    likely = p[position].topk(3)
    pairs = zip(likely.values.tolist(), likely.indices.tolist())
    shown = [f"{tokenizer.decode([token])!r} {share:.2f}" for share, token in pairs]
    print(repr(tokenizer.decode(idx[0, : position + 1].tolist())), "->", ", ".join(shown))

# %% The program's own trainer: a folder with everything, which `tinygpt sample FOLDER` opens too
with tempfile.TemporaryDirectory() as folder:
    metrics = tiny_gpt.train(out_dir=f"{folder}/run", max_iters=min(steps, 50), eval_iters=5)
    print(f"best validation loss {metrics.best:.3f}, {len(metrics)} lines of metrics")
    print(tiny_gpt.load(metrics.folder).write(max_new_tokens=60, seed=1))
