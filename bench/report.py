"""From pairs to results: the numbers of a row, the tables, the file that keeps everything."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure import Block, Pair, ratio, unit_ms
from peers import Candidate
from rows import Row

Json = dict[str, Any]


def row_result(row: Row, candidates: Sequence[Candidate], first: Block) -> Json:
    """All that is known of a row; `first` is the block of TinyGPT that nobody was beside."""
    blocks = [pair.ours for candidate in candidates for pair in candidate.pairs] or [first]
    shape = row.shape
    peers = [peer_result(row, p.name, [c for c in candidates if c.peer == p]) for p in row.peers]
    return {
        "name": row.name,
        "title": row.title,
        "parameters_without_positions": shape.parameters(),
        "tokens_per_unit": row.tokens_per_unit,
        "flop_per_token": shape.flop_per_token() if row.trains else None,
        "tinygpt": row.speed(unit_ms(blocks)),
        "peers": peers,
    }


def peer_result(row: Row, name: str, candidates: Sequence[Candidate]) -> Json:
    """A peer counts with the setting that leaves TinyGPT the lowest ratio."""
    result: Json = {"name": name, "settings": [setting_result(row, c) for c in candidates]}
    measured = [candidate for candidate in candidates if candidate.pairs]
    if measured:
        best = min(measured, key=lambda candidate: ratio(candidate.pairs))
        result |= {"best": best.setting.name} | beside(row, best.pairs)
    return result


def beside(row: Row, pairs: list[Pair]) -> Json:
    """Both speeds in these pairs, and how many times as fast as the peer TinyGPT was."""
    ratios = [pair.ratio for pair in pairs]
    return {
        "peer": row.speed(unit_ms([pair.peer for pair in pairs])),
        "tinygpt": row.speed(unit_ms([pair.ours for pair in pairs])),
        "ratio": ratio(pairs),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
    }


def setting_result(row: Row, candidate: Candidate) -> Json:
    """A setting: why it was skipped, how fast it was alone, and its pairs if it got so far."""
    result: Json = {"name": candidate.setting.name}
    if candidate.skipped:
        return result | {"skipped": candidate.skipped}
    result["alone"] = row.speed(candidate.trial_ms)
    if candidate.pairs:
        result["pairs"] = [{"tinygpt_ms": p.ours, "peer_ms": p.peer} for p in candidate.pairs]
        result |= beside(row, candidate.pairs)
    return result


def write(results: Json, folder: Path) -> None:
    """`results.json` and `results.md`."""
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (folder / "results.md").write_text(markdown(results), encoding="utf-8")


def verdict(peer: Json) -> str:
    """A peer's result in a line."""
    if "best" not in peer:
        return f"{peer['name']}: nothing could be measured"
    times = f"{peer['ratio']:.2f} ({peer['ratio_low']:.2f} to {peer['ratio_high']:.2f})"
    return f"TinyGPT / {peer['name']} ({peer['best']}): {times}"


def markdown(results: Json) -> str:
    """The tables: who is faster, then every setting that was tried."""
    return "\n".join([*head(results), *comparison(results["rows"]), "", *settings(results["rows"])])


def head(results: Json) -> list[str]:
    """What the numbers below were measured on."""
    packages = ", ".join(f"{name} {version}" for name, version in results["packages"].items())
    sets = ", ".join(results["instruction_sets"]) or "none known"
    runs_as = results["rows"][-1]["runs_as"] if results["rows"] else ""
    return [
        "# TinyGPT beside its peers",
        "",
        f"{results['date']}, `{results['command']}`",
        "",
        f"- {results['processor']}, {results['system']}; {results['threads']} of "
        f"{results['cpus']} CPUs on both sides; instruction sets: {sets}",
        f"- tinygpt {results['tinygpt']} ({results['commit']}), rustc {results['rustc']}; "
        f"runs as: {runs_as}",
        f"- Python {results['python']}, {packages}",
        "",
    ]


def comparison(rows: list[Json]) -> list[str]:
    """TinyGPT beside the fastest setting of each peer."""
    lines = [
        "Tokens a second (GFLOP/s in training); the ratio is the median of the pairs', with the "
        "lowest and the highest. Above 1 TinyGPT is faster.",
        "",
        "| work | TinyGPT | peer, its fastest setting | peer | TinyGPT / peer |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        for peer in row["peers"]:
            if "best" not in peer:
                ours = speed(row["tinygpt"])
                lines.append(f"| {row['title']} | {ours} | {peer['name']} | - | - |")
                continue
            spread = f"{peer['ratio_low']:.2f} to {peer['ratio_high']:.2f}"
            lines.append(
                f"| {row['title']} | {speed(peer['tinygpt'])} | {peer['name']}, {peer['best']} "
                f"| {speed(peer['peer'])} | **{peer['ratio']:.2f}** ({spread}) |"
            )
    return lines


def settings(rows: list[Json]) -> list[str]:
    """Every setting: those measured in pairs, those that were slower alone, those skipped."""
    lines = [
        "Every setting: tried alone first; only the fastest were measured in pairs.",
        "",
        "| work | setting | alone | in pairs | TinyGPT / it |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        for peer in row["peers"]:
            for one in peer["settings"]:
                name = f"| {row['title']} | {peer['name']}, {one['name']}"
                if "skipped" in one:
                    lines.append(f"{name} | skipped: {one['skipped'].replace('|', '/')} | | |")
                elif "pairs" in one:
                    paired = f"{speed(one['peer'])} | {one['ratio']:.2f}"
                    lines.append(f"{name} | {speed(one['alone'])} | {paired} |")
                else:
                    lines.append(f"{name} | {speed(one['alone'])} | | |")
    return [*lines, ""]


def speed(of: Json) -> str:
    """Tokens a second, and GFLOP/s where FLOPs are counted."""
    tokens = of["tokens_per_s"]
    text = f"{tokens:,.0f}" if tokens >= 100 else f"{tokens:.1f}"
    return f"{text} ({of['gflop_per_s']:.0f})" if "gflop_per_s" in of else text
