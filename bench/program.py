"""TinyGPT's side: its own program, timed by its own words where it has any."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import Block
from rows import Row, Shape

ROOT = Path(__file__).resolve().parent.parent
WARM_UP = 2
"""First steps of a training that do not count: pages of memory are new, threads start."""

WEIGHTS = {"f32": "--dtype=f32", "bf16": "--dtype=bf16", "int8": "--quantize=int8"}
"""What `tinygpt sample` can keep a model's weights in, and how it is told."""

STEP = re.compile(r"iter \d+: .* time ([0-9.]+)ms")
PROCESSOR = re.compile(r"processor +(.*)")


class ProgramError(Exception):
    """TinyGPT ended otherwise than expected; the text is its own."""


def build() -> Path:
    """Builds the program, and says where it is."""
    command = ["cargo", "build", "--release", "--locked", "--package", "tinygpt-cli"]
    subprocess.run(command, cwd=ROOT, check=True)
    ask = ["cargo", "metadata", "--format-version=1", "--no-deps", "--offline"]
    metadata = subprocess.run(ask, cwd=ROOT, check=True, capture_output=True).stdout
    name = "tinygpt.exe" if sys.platform == "win32" else "tinygpt"
    return Path(json.loads(metadata)["target_directory"]) / "release" / name


def formats(row: Row, dtype: str) -> list[str]:
    """What the row's weights are kept in: f32 in training, whatever it multiplies in; a text is
    written with each, and with `dtype` first."""
    return ["f32"] if row.trains else [dtype, *(name for name in WEIGHTS if name != dtype)]


def shape_flags(shape: Shape, batch_size: int) -> list[str]:
    """Every setting that the work depends on, whatever a preset says."""
    settings = {
        "n-layer": shape.n_layer,
        "n-head": shape.n_head,
        "n-embd": shape.n_embd,
        "block-size": shape.block_size,
        "vocab-size": shape.vocab_size,
        "bias": str(shape.bias).lower(),
        "activation": "gelu",
        "tokenizer": "char",
        "dropout": shape.dropout,
        "batch-size": batch_size,
        "gradient-accumulation-steps": 1,
    }
    return [f"--{name}={value}" for name, value in settings.items()]


class Program:
    """The program `tinygpt`, told how many threads to compute with; the models that it is to write
    texts with are made in `models`."""

    def __init__(self, path: Path, threads: int, models: Path):
        self.path, self.models = path, models
        self.threads = f"--threads={threads}"
        self.commands: dict[tuple[str, str], str] = {}
        self.computes_with = self.trains_in = ""

    def block(self, row: Row, weights: str, units: int) -> Block:
        """Milliseconds of so many units of the row's work, with weights of this format."""
        if row.trains:
            return self.training_steps(row, weights, units)
        return [self.token_ms(row, weights, units)]

    def runs_as(self, row: Row, weights: str) -> str:
        """The type of number: in training what the program said, else what it was told."""
        return self.trains_in if row.trains else weights

    def training_steps(self, row: Row, weights: str, steps: int) -> Block:
        """Milliseconds of each of `steps` steps, read from the log lines of `tinygpt train`.

        The one place where training is timed.
        """
        looks = ["--eval-interval=0", "--eval-iters=1", "--sample-tokens=0", "--log-interval=1"]
        flags = shape_flags(row.shape, row.batch_size) + looks
        wanted = WARM_UP + steps
        lines: list[str] = []
        times: Block = []
        with tempfile.TemporaryDirectory() as folder:
            flags += [f"--max-iters={wanted}", "--out-dir=run"]
            command = self.command(row, weights, "train", *flags)
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            with subprocess.Popen(command, cwd=folder, **pipes) as ran:
                for line in ran.stdout:
                    lines.append(line)
                    times += [float(step[1]) for step in [STEP.match(line)] if step]
                    self.note_processor(line)
                    if len(times) == wanted:
                        ran.kill()  # what follows is an evaluation and a checkpoint
                        return times[WARM_UP:]
        raise ProgramError("".join(lines[-5:]).strip())

    def token_ms(self, row: Row, weights: str, tokens: int) -> float:
        """Milliseconds a token: the difference of a long text and one of a single token, which is
        free of the time it takes to start and to load the model. One token is timed twice and the
        shorter counts: what disturbs it would be taken off the rest."""
        short = min(self.writing_s(row, weights, 1) for _ in range(2))
        long = self.writing_s(row, weights, 1 + tokens)
        if long <= short:
            raise ProgramError("the long text took no longer: too much else runs on this machine")
        return (long - short) / tokens * 1e3

    def writing_s(self, row: Row, weights: str, tokens: int) -> float:
        """Seconds that the program takes in all to write so many tokens."""
        how = ["--temperature=1", "--top-k=0", f"--max-new-tokens={tokens}", WEIGHTS[weights]]
        command = self.command(row, weights, "sample", str(self.model(row)), *how)
        start = time.monotonic()
        self.run(command)
        return time.monotonic() - start

    def model(self, row: Row) -> Path:
        """A model of random weights, made once."""
        folder = self.models / row.name
        if not folder.exists():
            once = ["--max-iters=0", "--eval-iters=1", "--sample-tokens=0", f"--out-dir={folder}"]
            flags = shape_flags(row.shape, row.batch_size) + once
            opening = self.run([str(self.path), "train", *flags, self.threads])
            for line in opening.splitlines():
                self.note_processor(line)
        return folder

    def run(self, command: list[str]) -> str:
        """What a command writes, once it has ended well."""
        ran = subprocess.run(command, cwd=self.models, capture_output=True, text=True)
        if ran.returncode != 0:
            raise ProgramError(ran.stderr.strip())
        return ran.stdout

    def command(self, row: Row, weights: str, *words: str) -> list[str]:
        """The command line, kept as an example of how the row was measured."""
        words = (*words, self.threads)
        words = [word.removeprefix(f"{self.models}{os.sep}") for word in words]
        self.commands[row.name, weights] = " ".join(["tinygpt", *words])
        return [str(self.path), *words]

    def note_processor(self, line: str) -> None:
        """Keeps what the program says it trains with: threads, instruction set, type of number."""
        if said := PROCESSOR.match(line):
            self.computes_with, _, self.trains_in = said[1].strip().rpartition(", ")
