"""A script that makes nanoGPT's calls, with either engine: the same training."""

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny_gpt

SCRIPT = Path(__file__).with_name("script.py")


@pytest.fixture
def data(tmp_path):
    """What nanoGPT's prepare script for characters leaves, for the text that the engine carries."""
    text = tiny_gpt.tiny_shakespeare()
    tokenizer = tiny_gpt.Tokenizer.from_text(text)
    ids = np.array(tokenizer.encode(text), dtype=np.uint16)
    cut = int(0.9 * len(ids))
    assert (len(text), cut, tokenizer.vocab_size) == (1_115_394, 1_003_854, 65)
    ids[:cut].tofile(tmp_path / "train.bin")
    ids[cut:].tofile(tmp_path / "val.bin")
    chars = sorted(set(text))
    meta = {
        "vocab_size": 65,
        "itos": dict(enumerate(chars)),
        "stoi": {c: i for i, c in enumerate(chars)},
    }
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps(meta))
    return tmp_path


def run(*arguments, dropout="0.0", launcher=()):
    environment = {**os.environ, "DROPOUT": dropout, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def losses(said, kind="iter"):
    return [float(x) for x in re.findall(rf"{kind} \d+: (?:val )?loss ([\d.]+)", said)]


def test_two_hundred_steps_end_at_the_same_loss_under_both_engines(data):
    rust, plain = [losses(run(data, engine, 200)) for engine in ("rust", "torch")]
    assert len(rust) == 200 and rust[-1] < 2.9 < 4.0 < rust[0]
    assert max(abs(a - b) for a, b in zip(rust, plain)) < 1e-3


def test_with_dropout_they_end_alike(data):
    ends = []
    for engine in ("rust", "torch"):
        found = losses(run(data, engine, 200, dropout="0.2"))
        ends.append(sum(found[-50:]) / 50)
    assert abs(ends[0] - ends[1]) < 0.1, ends


def test_a_checkpoint_of_one_engine_goes_on_under_the_other(data):
    whole = losses(run(data, "rust", 30), "step")
    run(data, "rust", 20)
    resumed = losses(run(data, "torch", 30, "resume"), "step")
    again = losses(run(data, "rust", 30, "resume"), "step")
    assert len(resumed) == 2 and abs(resumed[0] - whole[2]) < 0.1
    assert len(again) == 1 and abs(again[0] - whole[3]) < 0.1


def test_compiled_the_rust_engine_trains_the_same(data):
    expected = losses(run(data, "rust", 20))
    assert losses(run(data, "rust", 20, "compile")) == expected
    state = torch.load(data / "ckpt.pt", weights_only=False)["model"]
    assert all(name.startswith("_orig_mod.") for name in state)
    run(data, "rust", 30, "resume")


def test_two_processes_train_one_model(data):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
    said = run(data, "rust", 20, launcher=launcher)
    sums = re.findall(r"checksum (\S+)", said)
    assert len(sums) == 2 and sums[0] == sums[1]
    found = losses(said)
    assert len(found) == 40 and max(found[-2:]) < 4.0 < min(found[:2])
