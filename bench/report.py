"""From pairs to results: the numbers of a row, the tables, the file that keeps everything."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measure import Block, Pair, ratio, unit_ms
from peers import Candidate
from rows import Row

Json = dict[str, Any]


@dataclass(eq=False)
class Format:
    """TinyGPT with its weights in another format than the row's, beside the best of all peers."""

    weights: str
    beside: Candidate | None
    pairs: list[Pair] = field(default_factory=list)
    skipped: str = ""
    alone: Block = field(default_factory=list)


def row_result(
    row: Row,
    candidates: Sequence[Candidate],
    first: Block,
    runs_as: str,
    formats: Sequence[Format] = (),
) -> Json:
    """All that is known of a row; `first` is the block of TinyGPT that nobody was beside."""
    blocks = [pair.ours for candidate in candidates for pair in candidate.pairs] or [first]
    shape = row.shape
    settings = [[c for c in candidates if c.peer == peer] for peer in row.peers]
    peers = [peer_result(row, peer.name, of) for peer, of in zip(row.peers, settings)]
    return {
        "name": row.name,
        "title": row.title,
        "parameters_without_positions": shape.parameters(),
        "tokens_per_unit": row.tokens_per_unit,
        "flop_per_token": shape.flop_per_token() if row.trains else None,
        "tinygpt": row.speed(unit_ms(blocks)),
        "runs_as": runs_as,
        "peers": [peer | {"runs_as": runs_as} for peer in peers],
        "formats": [format_result(row, one) for one in formats],
    }


def peer_result(row: Row, name: str, candidates: Sequence[Candidate]) -> Json:
    """A peer counts with the setting that leaves TinyGPT the lowest ratio."""
    result: Json = {"name": name, "settings": [setting_result(row, c) for c in candidates]}
    if best := hardest(candidates):
        result |= {"best": best.setting.name} | beside(row, best.pairs)
    return result


def hardest(candidates: Sequence[Candidate]) -> Candidate | None:
    """The one that leaves TinyGPT the lowest ratio, of those that were measured in pairs."""
    measured = [candidate for candidate in candidates if candidate.pairs]
    return min(measured, key=lambda candidate: ratio(candidate.pairs), default=None)


def format_result(row: Row, of: Format) -> Json:
    """Another format's speed and ratio, under the same names as a peer's."""
    blocks = [pair.ours for pair in of.pairs] or [of.alone]
    result: Json = {"runs_as": of.weights, "tinygpt": row.speed(unit_ms(blocks))}
    if of.beside is None:
        return result | {"name": "no peer"}
    result["name"] = of.beside.peer.name
    if of.skipped:
        return result | {"skipped": of.skipped}
    return result | {"best": of.beside.setting.name} | in_pairs(row, of.pairs)


def in_pairs(row: Row, pairs: list[Pair]) -> Json:
    """Every time that was measured, and what the times come to."""
    times = [{"tinygpt_ms": pair.ours, "peer_ms": pair.peer} for pair in pairs]
    return {"pairs": times} | beside(row, pairs)


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
        result |= in_pairs(row, candidate.pairs)
    return result


def kept(results: Json, folder: Path) -> dict[str, Json]:
    """The rows in `folder` that were measured as `results` will be: on the same processor, with as
    many threads and the same packages."""
    try:
        before = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    same = all(before.get(of) == results[of] for of in ("processor", "threads", "packages"))
    return {row["name"]: row for row in before.get("rows", []) if same and "measured" in row}


def write(results: Json, folder: Path) -> None:
    """`results.json` and `results.md`."""
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (folder / "results.md").write_text(markdown(results), encoding="utf-8")


def verdict(peer: Json) -> str:
    """A peer's result in a line."""
    if "best" not in peer and "tinygpt" in peer:
        return f"TinyGPT, {peer['runs_as']}: {speed(peer['tinygpt'])} tokens/s, beside no peer"
    if "best" not in peer:
        return f"TinyGPT, {peer['runs_as']} / {peer['name']}: nothing could be measured"
    times = f"{peer['ratio']:.2f} ({peer['ratio_low']:.2f} to {peer['ratio_high']:.2f})"
    return f"TinyGPT, {peer['runs_as']} / {peer['name']}, {peer['best']}: {times}"


def markdown(results: Json) -> str:
    """The tables: who is faster, then every setting that was tried."""
    return "\n".join([*head(results), *comparison(results["rows"]), "", *settings(results["rows"])])


def head(results: Json) -> list[str]:
    """What the numbers below were measured on."""
    packages = ", ".join(f"{name} {version}" for name, version in results["packages"].items())
    sets = ", ".join(results["instruction_sets"]) or "none known"
    computes_with = results["rows"][-1]["computes_with"] if results["rows"] else ""
    earlier: dict[str, list[str]] = {}
    for row in results["rows"]:
        of = row["measured"]
        if of["date"] != results["date"]:
            when = f"- measured {of['date']}, tinygpt {of['commit']}, `{of['command']}`"
            earlier.setdefault(when, []).append(row["title"])
    return [
        "# TinyGPT beside its peers",
        "",
        f"{results['date']}, `{results['command']}`",
        "",
        f"- {results['processor']}, {results['system']}; {results['threads']} of "
        f"{results['cpus']} CPUs on both sides; instruction sets: {sets}",
        f"- tinygpt {results['tinygpt']} ({results['commit']}), rustc {results['rustc']}; "
        f"computes with: {computes_with}",
        f"- Python {results['python']}, {packages}",
        *(f"{when}: {'; '.join(titles)}" for when, titles in earlier.items()),
        "",
    ]


def comparison(rows: list[Json]) -> list[str]:
    """TinyGPT beside each peer, in the setting that leaves TinyGPT the lowest ratio."""
    lines = [
        "Tokens a second (GFLOP/s in training); the ratio is the median of the pairs', with the "
        "lowest and the highest. Above 1 TinyGPT is faster. It runs as: the type of number that it "
        "trains in, or what it keeps its weights in to write a text.",
        "",
        "| work | runs as | TinyGPT | peer, in the setting nearest to TinyGPT | peer | TinyGPT / peer |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        for peer in row["peers"] + row["formats"]:
            ours = speed(peer.get("tinygpt", row["tinygpt"]))
            work = f"| {row['title']} | {peer['runs_as']} | {ours} | {peer['name']}"
            if "best" not in peer:
                lines.append(f"{work} | - | - |")
                continue
            spread = f"{peer['ratio_low']:.2f} to {peer['ratio_high']:.2f}"
            lines.append(
                f"{work}, {peer['best']} | {speed(peer['peer'])} "
                f"| **{peer['ratio']:.2f}** ({spread}) |"
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
