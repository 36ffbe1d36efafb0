"""TinyGPT beside PyTorch and transformers, in turn on the same machine: `python bench/compare.py`.

Needs `requirements.txt`, and says how to install it. Writes `results.json`, `results.md` and a
chart.
"""

import argparse
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import machine
import report
from measure import PeerError, Race, in_turn, units_in
from peers import Candidate, Worker
from program import Program, ProgramError, build, formats
from rows import ROWS, Peer, Row

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"
MODULES = ("torch", "transformers", "matplotlib", "safetensors")
TRIAL_S = 3.0
"""About how long a setting is tried alone, once it is warm."""
DTYPE_HELP = (
    "of TinyGPT's weights when it writes beside every peer (default f32); the other formats are "
    "measured beside the best peer only, and training takes what suits the processor"
)
ROWS_HELP = "; ".join(
    ("the others stay as they were measured here before", ", ".join(row.name for row in ROWS))
)
SELF_TEST_HELP = "check this program on made-up numbers, and on a tinygpt if one is named; and stop"


@dataclass(frozen=True)
class Plan:
    """How to measure."""

    python: str
    threads: int
    rounds: int
    seconds: float
    dtype: str = "f32"


def say(text: str) -> None:
    """A line of progress."""
    print(text, flush=True)


def try_all(row: Row, peer: Peer, plan: Plan, workers: ExitStack) -> list[Candidate]:
    """Tries a peer's settings one by one and leaves the workers of the fastest running, for
    `workers` to end. No more than one beyond those is ever alive: they are large."""
    candidates = []
    for setting in row.settings(peer):
        worker = workers.enter_context(Worker(plan.python, row, peer, setting, plan.threads))
        candidate = Candidate(peer, setting, worker)
        candidates.append(candidate)
        if peer.multiplies and setting.bf16 and not machine.multiplies_bf16():
            candidate.drop("this processor does not multiply bf16")
            say(f"  {peer.name}, {setting.name}: skipped: {candidate.skipped}")
            continue
        try:
            worker.start()
            candidate.trial_ms = trial(row, worker)
        except PeerError as error:
            candidate.drop(str(error))
            say(f"  {peer.name}, {setting.name}: skipped: {error}")
            continue
        check_parameters(row, peer, worker.parameters)
        say(f"  {peer.name}, {setting.name}: {alone(row, candidate.trial_ms)}")
        running = sorted((c for c in candidates if c.worker), key=lambda c: c.trial_ms)
        for slow in running[peer.finalists :]:
            slow.drop()
    return candidates


def trial(row: Row, worker: Worker) -> float:
    """Milliseconds a unit when nothing else is measured: enough to drop the slow settings. A text
    is written whole: who is fast at its beginning may be slow at its end."""
    if not row.trains:
        return median(worker.block(row.new_tokens))
    first = median(worker.block(1))
    return median(worker.block(units_in(TRIAL_S, first, least=1)))


def check_parameters(row: Row, peer: Peer, found: int) -> None:
    """Both sides must be the same model; but transformers' GPT-2 has biases whatever one asks."""
    expected = row.shape.parameters()
    if found != expected and (row.shape.bias or peer.job != "transformers"):
        raise SystemExit(f"{row.name}: {peer.name} has {found} parameters, expected {expected}")


def alone(row: Row, unit_ms: float) -> str:
    """A speed in words."""
    return f"{row.speed(unit_ms)['tokens_per_s']:,.1f} tokens/s alone"


def measure_row(row: Row, program: Program, plan: Plan) -> dict[str, Any]:
    """Everything there is to know of a row."""
    say(f"{row.name}: {row.title}")
    weights, *others = formats(row, plan.dtype)
    with ExitStack() as workers:
        candidates = [c for peer in row.peers for c in try_all(row, peer, plan, workers)]
        first = program.block(row, weights, 2 if row.trains else row.new_tokens)
        say(f"  TinyGPT: {alone(row, median(first))}")
        final = [candidate for candidate in candidates if candidate.worker]
        share = plan.seconds / max(len(final) + len(others), 1)
        race_settings(row, program, plan, final, weights, median(first), share)
        other = race_formats(row, program, plan, report.hardest(final), others, share)
    runs_as = program.runs_as(row, weights)
    result = report.row_result(row, candidates, first, runs_as, other)
    for peer in result["peers"] + result["formats"]:
        say(f"  {report.verdict(peer)}")
    commands = {name: program.commands[row.name, name] for name in (weights, *others)}
    return result | {"commands": commands, "computes_with": program.computes_with}


def race_settings(
    row: Row,
    program: Program,
    plan: Plan,
    final: list[Candidate],
    weights: str,
    first_ms: float,
    share: float,
) -> None:
    """Measures the settings that stayed, `share` seconds each, and drops those that fail."""

    def units(alone_ms: float) -> int:
        return units_in(share / plan.rounds / 2, alone_ms) if row.trains else row.new_tokens

    races = [
        Race(
            lambda: program.block(row, weights, units(first_ms)),
            lambda c=c: c.worker.block(units(c.trial_ms)),
        )
        for c in final
    ]
    in_turn(races, plan.rounds, share * len(final))
    for candidate, race in zip(final, races):
        candidate.pairs = race.pairs
        if race.failed:
            candidate.drop(race.failed)
            say(f"  {candidate.peer.name}, {candidate.setting.name}: skipped: {race.failed}")


def race_formats(
    row: Row,
    program: Program,
    plan: Plan,
    best: Candidate | None,
    names: list[str],
    share: float,
) -> list[report.Format]:
    """Measures TinyGPT with its weights in other formats, beside the best peer if there is one."""
    found = [report.Format(name, best) for name in names]
    tokens = row.new_tokens
    if best:
        races = [
            Race(
                lambda name=name: program.block(row, name, tokens),
                lambda: best.worker.block(tokens),
            )
            for name in names
        ]
        in_turn(races, plan.rounds, share * len(names))
        for one, race in zip(found, races):
            one.pairs, one.skipped = race.pairs, race.failed
    for one in found:
        one.alone = [] if one.pairs else program.block(row, one.weights, tokens)
    return found


def options() -> argparse.Namespace:
    """The command line."""
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--rows", nargs="+", choices=names, default=names, metavar="ROW", help=ROWS_HELP)
    add("--rounds", type=positive, default=5, help="pairs of each peer, at most (default 5)")
    add("--seconds", type=float, default=45, help="of pairs in a row, about (default 45)")
    add("--threads", type=positive, default=machine.usable_cpus(), help="on both sides")
    add("--dtype", choices=("f32", "bf16"), default="f32", help=DTYPE_HELP)
    add("--out", type=Path, default=HERE, help="folder of the results (default bench/)")
    add("--install", action="store_true", help=f"make {VENV.name} and install the packages first")
    add("--self-test", nargs="?", const="", metavar="TINYGPT", help=SELF_TEST_HELP)
    return parser.parse_args()


def positive(text: str) -> int:
    """A whole number from 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
    return number


def python_of_peers() -> str:
    """The Python of the virtual environment if there is one, else this one."""
    in_venv = VENV / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    return str(in_venv) if in_venv.exists() else sys.executable


def python_with_packages(install: bool) -> str:
    """That Python, once it is certain to have the packages."""
    requirements = HERE / "requirements.txt"
    if install:
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        pip = [python_of_peers(), "-m", "pip", "install", "-r", str(requirements)]
        subprocess.run(pip, check=True)
    python = python_of_peers()
    found = machine.packages(python, MODULES)
    if lacks := [name for name in MODULES if name not in found]:
        raise SystemExit(
            f"error: {python} lacks {', '.join(lacks)}\n"
            f"hint: {sys.executable} {HERE / 'compare.py'} --install makes {VENV} and installs\n"
            f"      them there; or: {python} -m pip install -r {requirements}"
        )
    return python


def main() -> None:
    """Measures the rows asked for, and writes what there is after each."""
    asked = options()
    if asked.self_test is not None:
        test = [python_of_peers(), str(HERE / "self_test.py")]
        raise SystemExit(subprocess.call(test + ([asked.self_test] if asked.self_test else [])))
    python = python_with_packages(asked.install)
    plan = Plan(python, asked.threads, asked.rounds, asked.seconds, asked.dtype)
    path = build()
    asked.out.mkdir(parents=True, exist_ok=True)
    results = machine.about(path, asked.threads)
    results["packages"] = machine.packages(plan.python, MODULES)
    measured = {name: results[name] for name in ("date", "commit", "command")}
    rows = report.kept(results, asked.out)
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as models:
        program = Program(path, asked.threads, Path(models))
        for row in [row for row in ROWS if row.name in asked.rows]:
            try:
                rows[row.name] = measure_row(row, program, plan) | {"measured": measured}
            except ProgramError as error:
                failed.append(row.name)
                say(f"  {row.name}: skipped: TinyGPT: {error}")
            results["rows"] = [rows[row.name] for row in ROWS if row.name in rows]
            report.write(results, asked.out)
    say((asked.out / "results.md").read_text(encoding="utf-8"))
    chart = asked.out / "bench.svg" if asked.out != HERE else HERE.parent / "docs" / "bench.svg"
    drawing = [plan.python, str(HERE / "chart.py"), str(asked.out / "results.json"), str(chart)]
    subprocess.run(drawing, check=True)
    if failed:
        raise SystemExit(f"error: TinyGPT itself failed in {', '.join(failed)}")


if __name__ == "__main__":
    try:
        main()
    except (ProgramError, subprocess.CalledProcessError, OSError) as error:
        raise SystemExit(f"error: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit("stopped; the rows that were finished are kept") from None
