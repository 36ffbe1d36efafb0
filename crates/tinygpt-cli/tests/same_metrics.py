"""A run's metrics beside what TensorBoard's own reader makes of its files.

    python same_metrics.py TINYGPT

TINYGPT is the program. Skipped where TensorBoard is not installed.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = str(Path(sys.argv[1]).resolve())
SIZES = "--n-layer 2 --n-head 2 --n-embd 64 --block-size 32 --batch-size 2".split()
# Every parameter but the positions: V x C with V = 18, and two layers with their norms, without biases.
PARAMETERS = 18 * 64 + 2 * (12 * 64 * 64 + 2 * 64) + 64


def train(folder, *words):
    rest = "--eval-iters 1 --sample-tokens 0 --learning-rate 0.01 --warmup-iters 0".split()
    resumes = "--resume" in words
    words = ["train", *words, *([] if resumes else [*SIZES, *rest, "--out-dir", "run", "text.txt"])]
    done = subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)


def records(folder):
    lines = (folder / "run/metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def check(folder, read):
    """Every number, under its step and name, once."""
    expected = {}
    for record in records(folder):
        numbers = {key: x for key, x in record.items() if x is not None and not isinstance(x, bool)}
        step = record["iter"]
        if "lr" in record:
            numbers["train/batch_loss"] = numbers.pop("train/loss")
            # nanoGPT's count for this model.
            flops = 6 * PARAMETERS + 12 * 2 * 64 * 32
            numbers["mfu"] = 100 * flops * record["tokens_per_s"] / 312e12
            del numbers["iter"]
        for tag, value in numbers.items():
            expected.setdefault(tag, []).append((step, value))
    assert set(read.Tags()["scalars"]) == set(expected), (read.Tags(), expected.keys())
    for tag, points in expected.items():
        found = [(event.step, event.value) for event in read.Scalars(tag)]
        steps = [step for step, _ in found]
        assert steps == [step for step, _ in points], (tag, found, points)
        assert len(set(steps)) == len(steps), (tag, found)
        for (_, a), (_, b) in zip(found, points):
            assert abs(a - b) <= 1e-6 * abs(b), (tag, found, points)
    for event in read.Scalars("iter"):
        assert abs(event.wall_time - os.path.getmtime(folder / "run")) < 600
    with open(folder / "run/metrics.csv") as file:
        rows = list(csv.DictReader(file))
    for tag in ["train/loss", "train/batch_loss", "val/loss", "lr"]:
        column = [(int(row["iter"]), float(row[tag])) for row in rows if row[tag]]
        assert column == expected[tag], (tag, column, expected[tag])


def after_a_kill_the_steps_are_those_that_were_taken_again(folder, reader):
    train(folder, "--tensorboard", "--eval-interval", "2", "--max-iters", "4")
    assert "tensorboard = true" in (folder / "run/config.toml").read_text()
    read = reader()
    check(folder, read.Reload())
    # As if last/ were older.
    shutil.copytree(folder / "run/last", folder / "older")
    train(folder, "--resume", "run", "--max-iters", "7")
    assert records(folder)[-1]["iter"] == 7
    shutil.rmtree(folder / "run/last")
    shutil.move(folder / "older", folder / "run/last")
    train(folder, "--resume", "run", "--max-iters", "9")
    assert len(list((folder / "run").glob("events.out.tfevents.*"))) == 3
    check(folder, read.Reload())
    check(folder, reader().Reload())


def a_stretch_that_was_trained_without_it_is_there_too(folder, reader):
    train(folder, "--tensorboard", "--eval-interval", "2", "--max-iters", "2")
    train(folder, "--resume", "run", "--max-iters", "4", "--tensorboard=false")
    train(folder, "--resume", "run", "--max-iters", "6", "--tensorboard")
    assert [record["iter"] for record in records(folder) if "lr" not in record] == [0, 2, 4, 6]
    check(folder, reader().Reload())


try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit()

for test in [
    after_a_kill_the_steps_are_those_that_were_taken_again,
    a_stretch_that_was_trained_without_it_is_there_too,
]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "text.txt").write_text("To be, or not to be: that is the question.\n" * 40)
        test(folder, lambda: EventAccumulator(str(folder / "run"), size_guidance={"scalars": 0}))
    print(f"ok: {test.__name__}")
