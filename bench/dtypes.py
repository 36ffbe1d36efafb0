"""Two runs of the same seed in f32 and in bf16 beside each other, for each pair given:

python bench/dtypes.py docs/bf16.svg runs/f32-1:runs/bf16-1 runs/f32-2:runs/bf16-2
"""

import json
import sys
from itertools import accumulate
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402: the backend is chosen first

# One picture for readers in light and in dark, as in chart.py.
TEXT, F32, BF16 = "#7d8590", "#7d8590", "#2f81f7"
MEAN_OF = 50  # steps: a step's own loss is that of its own few sequences


def losses(run: str) -> tuple[list[float], dict[int, float]]:
    """The training loss of every step, and the validation losses by step."""
    lines = Path(run, "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    steps = [r["train/loss"] for r in records if "lr" in r]
    return steps, {r["iter"]: r["val/loss"] for r in records if "val/loss" in r}


def smooth(values: list[float]) -> tuple[range, list[float]]:
    """Means over MEAN_OF values, every tenth of them, each at the last."""
    sums = [0.0, *accumulate(values)]
    ends = range(MEAN_OF, len(values) + 1, 10)
    return ends, [(sums[end] - sums[end - MEAN_OF]) / MEAN_OF for end in ends]


def draw(pairs: list[tuple[str, str]], path: Path) -> None:
    plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "tinygpt", "font.size": 10}
    plt.rcParams |= {"font.family": "sans-serif", "text.color": TEXT}
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 5), sharex=True, height_ratios=(2, 1))
    for f32, bf16 in pairs:
        (a, val_a), (b, val_b) = losses(f32), losses(bf16)
        top.plot(*smooth(a), color=F32, linewidth=3, alpha=0.6, label="f32")
        top.plot(*smooth(b), color=BF16, linewidth=1, label="bf16")
        bottom.plot(*smooth([y - x for x, y in zip(a, b)]), color=BF16, linewidth=1)
        both = sorted(val_a.keys() & val_b.keys())
        bottom.plot(both, [val_b[i] - val_a[i] for i in both], "o", color=BF16, markersize=4)
        last = both[-1]
        print(f"{f32}, {bf16}: validation {val_a[last]:.4f} and {val_b[last]:.4f} at {last}")
    handles, labels = top.get_legend_handles_labels()
    top.legend(handles[:2], labels[:2], labelcolor=TEXT, frameon=False)
    top.set_title(f"training loss, means of {MEAN_OF} steps", color=TEXT, loc="left")
    title = "bf16 less f32: lines training, dots validation"
    bottom.set_title(title, color=TEXT, loc="left")
    bottom.axhline(0, color=TEXT, linewidth=1)
    bottom.set_xlabel("step", color=TEXT, loc="right")
    for axes in (top, bottom):
        axes.tick_params(colors=TEXT)
        axes.spines[:].set_visible(False)
        axes.grid(color=TEXT, alpha=0.25, linewidth=0.5)
    figure.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    if len(sys.argv) < 3 or not all(":" in pair for pair in sys.argv[2:]):
        sys.exit(__doc__)
    draw([tuple(pair.split(":", 1)) for pair in sys.argv[2:]], Path(sys.argv[1]))
