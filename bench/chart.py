"""The chart of a comparison: `python bench/chart.py bench/results.json docs/bench.svg`."""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402: the backend is chosen first
from matplotlib.ticker import FuncFormatter, NullLocator  # noqa: E402

# One picture for readers in light and in dark: no background, colours and a grey seen on both.
TEXT, FASTER, SLOWER = "#7d8590", "#2f81f7", "#d9772b"


def bars(results: dict[str, Any]) -> list[tuple[str, float, str]]:
    """For each comparison what it is, the ratio and both speeds."""
    found = []
    for row in results["rows"]:
        for peer in row["peers"] + row["formats"]:
            if "best" in peer:
                title = f"{row['title']}, {peer['runs_as']}"
                name = f"{title}\n{peer['name']}, {peer['best']}"
                ours, theirs = (peer[who]["tokens_per_s"] for who in ("tinygpt", "peer"))
                times = f"{peer['ratio']:.2f}" if peer["ratio"] < 10 else f"{peer['ratio']:.0f}"
                label = f"{times} x   ({ours:,.0f} to {theirs:,.0f} tokens/s)"
                found.append((name, peer["ratio"], label))
    return found


def draw(results: dict[str, Any], path: Path) -> None:
    """Bars to the right of 1 where TinyGPT is faster, to the left where it is slower."""
    if not (found := bars(results)):
        print("nothing to draw: no peer could be measured")
        return
    names, ratios, labels = zip(*found)
    plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "tinygpt", "font.size": 10}
    plt.rcParams |= {"font.family": "sans-serif", "text.color": TEXT}
    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.55 * len(names)))
    colors = [FASTER if ratio >= 1 else SLOWER for ratio in ratios]
    axes.barh(names, [ratio - 1 for ratio in ratios], left=1, height=0.55, color=colors)
    axes.set_xscale("log", base=2)
    low, high = min(*ratios, 0.9), max(*ratios, 1.1)
    axes.set_xlim(low / 1.1, high * (high / low) ** 0.6)  # room for the labels
    axes.set_xticks([2.0**n for n in range(-10, 11) if low <= 2.0**n <= high])
    beside = {"textcoords": "offset points", "va": "center"}
    for index, (ratio, label) in enumerate(zip(ratios, labels)):
        axes.annotate(label, (max(ratio, 1), index), (6, 0), **beside)
    axes.axvline(1, color=TEXT, linewidth=1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g} x"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(colors=TEXT, length=0)
    axes.spines[:].set_visible(False)
    axes.invert_yaxis()
    axes.set_title("TinyGPT's speed over the peer's", color=TEXT, loc="left")
    about = f"{results['processor']}, {results['threads']} threads, {results['date']}"
    axes.set_xlabel(about, color=TEXT, fontsize=8, loc="right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2]))
