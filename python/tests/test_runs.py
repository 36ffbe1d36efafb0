"""Runs and checkpoints, between Python and the program."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
from conftest import batch, model, program

import tiny_gpt

SMALL = dict(
    n_layer=1,
    n_head=2,
    n_embd=8,
    block_size=8,
    batch_size=4,
    max_iters=6,
    eval_interval=3,
    eval_iters=2,
    sample_tokens=5,
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_run_leaves_the_programs_folder_and_returns_its_metrics():
    events = []
    metrics = tiny_gpt.train(SMALL, on_event=events.append)
    assert metrics.folder == Path("runs/quick")
    steps = [line for line in metrics if "lr" in line]
    evaluations = [line for line in metrics if "val/loss" in line]
    assert [line["iter"] for line in steps] == list(range(6))
    assert [line["iter"] for line in evaluations] == [0, 3, 6]
    assert metrics.best == min(line["val/loss"] for line in evaluations)
    kinds = [event.pop("event") for event in events]
    assert kinds[0] == "start" and kinds.count("step") == 6 and kinds.count("evaluation") == 3
    assert [e for e, kind in zip(events, kinds) if kind == "step"] == steps
    for name in ("config.toml", "loss.svg", "samples.txt", "best", "last"):
        assert (metrics.folder / name).exists(), name
    assert tiny_gpt.train(SMALL, max_iters=1).folder == Path("runs/quick-2")


def test_a_run_loads_and_its_model_has_the_loss_that_the_run_wrote():
    Path("my.txt").write_text("to be, or not to be, that is the question:\n" * 40, "utf-8")
    metrics = tiny_gpt.train("my.txt", **SMALL, eval_full=True, out_dir="mine")
    gpt = tiny_gpt.load("mine")
    assert not gpt.training and isinstance(gpt.tokenizer, tiny_gpt.Tokenizer)
    text = Path("my.txt").read_text("utf-8")
    ids = torch.tensor(gpt.tokenizer.encode(text[int(0.9 * len(text)) :]))
    t, losses, count = 8, 0.0, 0
    for start in range(0, len(ids) - 1, t):
        window = ids[start : start + t + 1]
        losses += float(gpt(window[None, :-1], window[None, 1:])[1]) * (len(window) - 1)
        count += len(window) - 1
    assert losses / count == pytest.approx(metrics.best, abs=1e-4)
    assert gpt.write("to be", 10, temperature=0) == gpt.write("to be", 10, temperature=0)
    with pytest.raises(ValueError, match="n_layer"):
        tiny_gpt.load("mine", n_layer=2)
    assert tiny_gpt.load("mine", dropout=0.1, engine="torch").config.dropout == 0.1


def test_a_run_goes_on_where_it_stopped_bit_for_bit():
    whole = tiny_gpt.train(SMALL, max_iters=6, lr_decay_iters=6, out_dir="whole")
    tiny_gpt.train(SMALL, max_iters=3, lr_decay_iters=6, out_dir="cut")
    resumed = tiny_gpt.train(resume="cut", max_iters=6)
    timeless = lambda lines: [(line["iter"], line["train/loss"], line.get("lr")) for line in lines]
    assert timeless(whole) == timeless(resumed)
    with pytest.raises(ValueError, match="n_layer = 2: this run has n_layer = 1"):
        tiny_gpt.train(resume="cut", n_layer=2)


def test_a_training_prints_its_losses_unless_it_is_heard_or_told_to_be_quiet(capsys):
    metrics = tiny_gpt.train(SMALL, seed=None, n_layer=None)
    said = capsys.readouterr().out
    assert f"run: {metrics.folder}\n" in said
    assert [line.split(":")[0] for line in said.splitlines() if line.startswith("step")] == [
        "step 0",
        "step 3",
        "step 6",
    ]
    tiny_gpt.train(SMALL, verbose=False)
    tiny_gpt.train(SMALL, on_event=lambda event: None)
    assert capsys.readouterr().out == ""


def test_a_resumed_run_says_what_changed_and_that_it_is_done():
    tiny_gpt.train(SMALL, out_dir="run", verbose=False)
    events = []
    tiny_gpt.train(resume="run", max_iters=7, learning_rate=0.01, on_event=events.append)
    said = [event["text"] for event in events if event["event"] == "warning"]
    assert "changed: max_iters 6 -> 7" in said
    events.clear()
    tiny_gpt.train(resume="run", on_event=events.append)
    kinds = [event["event"] for event in events]
    assert kinds == ["start", "warning"] and "raise it with max_iters=14" in events[1]["text"]
    with pytest.raises(ValueError, match="resume goes on with it, overwrite replaces it, another"):
        tiny_gpt.train(SMALL, out_dir="run")
    assert tiny_gpt.train(resume=True, max_iters=8, verbose=False).folder.name == "run"
    assert tiny_gpt.train(SMALL, out_dir="run", overwrite=True, verbose=False)[-1]["iter"] == 6
    with pytest.raises(ValueError, match="resume goes on with a run; preset is for a new one"):
        tiny_gpt.train(resume="run", preset="quick")
    with pytest.raises(ValueError, match="overwrite: no out_dir says what to replace"):
        tiny_gpt.train(SMALL, overwrite=True)


def test_a_training_starts_from_the_weights_of_a_run_or_of_another_programs_model():
    Path("my.txt").write_text("to be, or not to be, that is the question:\n" * 40, "utf-8")
    tiny_gpt.train("my.txt", **SMALL, out_dir="first", verbose=False)
    first = tiny_gpt.load("first")
    rest = dict(max_iters=0, eval_iters=2, out_dir="second", verbose=False)
    tiny_gpt.train("my.txt", init_from="first", **rest)
    second = tiny_gpt.load("second")
    assert second.config == first.config and second.tokenizer == first.tokenizer
    assert torch.equal(second.lm_head.weight, first.lm_head.weight)
    with pytest.raises(ValueError, match="n_layer = 2: the weights at .* have n_layer = 1"):
        tiny_gpt.train("my.txt", init_from="first", n_layer=2)
    saved = dict(model=first.state_dict(), iter_num=2, best_val_loss=torch.tensor(3.0))
    fields = ("n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size")
    saved["model_args"] = {name: getattr(first.config, name) for name in fields}
    saved["config"] = {}
    optimizer = first.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cpu")
    saved["optimizer"] = optimizer.state_dict()
    torch.save(saved, "ckpt.pt")
    heard = []
    start = dict(max_iters=2, eval_iters=2, on_event=heard.append)
    with pytest.raises(ValueError, match=r"(?s)no tokenizer, which says .*16 .* \(tokenizer\)"):
        tiny_gpt.train("my.txt", init_from="ckpt.pt", **start)
    metrics = tiny_gpt.train("my.txt", init_from="ckpt.pt", tokenizer="char", **start)
    assert tiny_gpt.load(metrics.folder).config.n_embd == 8
    assert any("the optimizer starts afresh" in event.get("text", "") for event in heard)
    assert (metrics.folder / "config.toml").read_text("utf-8").count("# argument") == 3
    with pytest.raises(ValueError, match="is for weights that are there already|weights only"):
        tiny_gpt.train("my.txt", resume="ckpt.pt")
    idx = torch.tensor([[0, 1, 2, 3]])
    for _ in range(2):
        first(idx, idx)[1].backward()
        optimizer.step()
    torch.save(saved | dict(model=first.state_dict(), optimizer=optimizer.state_dict()), "ckpt.pt")
    metrics = tiny_gpt.train(
        "my.txt", resume="ckpt.pt", max_iters=4, eval_iters=2, log_interval=1, on_event=lambda _: 0
    )
    # nanoGPT's `iter_num` is the step to do next.
    assert [row["iter"] for row in metrics if "lr" in row] == [2, 3]
    assert tiny_gpt.load(metrics.folder).get_num_params() == first.get_num_params()


INTERRUPTED = """
import os, signal, sys, threading, time, tiny_gpt
began = []
def interrupt():
    began.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(1.0, interrupt).start()
try:
    tiny_gpt.train(sys.argv[1], tokenizer="gpt2", max_iters=1, verbose=False)
except KeyboardInterrupt:
    print(time.monotonic() - began[0])
"""


@pytest.mark.parametrize("kind", ["a text", "a pipe"])
def test_ctrl_c_while_a_text_is_read_ends_it_at_once_and_leaves_nothing(kind):
    if kind == "a text":
        part = tiny_gpt.tiny_shakespeare()
        Path("long.txt").write_text(part * 50, "utf-8")
    else:
        os.mkfifo("long.txt")
    command = [sys.executable, "-c", INTERRUPTED, "long.txt"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert said.returncode == 0, said.stderr
    assert float(said.stdout) < 2, said.stdout
    assert [path.name for path in Path(".").iterdir()] == ["long.txt"]


def test_a_model_saved_without_a_tokenizer_is_told_to_lack_one():
    with pytest.warns(UserWarning, match="saved has no tokenizer.json, .* set model.tokenizer"):
        model().save("saved")
    assert tiny_gpt.load("saved").tokenizer is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gpt = model()
        gpt.tokenizer = tiny_gpt.Tokenizer.from_text("abcdefghijklm")
        gpt.save("saved")


def test_a_start_that_fails_removes_only_what_it_made():
    Path("short.txt").write_text("too short", "utf-8")
    Path("empty").mkdir()
    for folder, left in (("empty", True), ("new", False)):
        with pytest.raises(ValueError, match="block_size"):
            tiny_gpt.train("short.txt", out_dir=folder)
        assert Path(folder).is_dir() == left
    assert not list(Path("empty").iterdir())
    Path("empty/mine.txt").write_text("mine", "utf-8")
    with pytest.raises(ValueError, match="choose a new folder with out_dir$"):
        tiny_gpt.train(SMALL, out_dir="empty")
    with pytest.raises(ValueError, match="weights that are there already"):
        tiny_gpt.train(preset="finetune")
    with pytest.raises(ValueError, match="argument: unknown key"):
        tiny_gpt.train(learning_rte=1)


def test_a_listener_that_raises_and_ctrl_c_save_first():
    def listen(event):
        if event["event"] == "step" and event["iter"] == 4:
            raise LookupError("heard enough")

    with pytest.raises(LookupError, match="heard enough"):
        tiny_gpt.train(SMALL, max_iters=100, on_event=listen, out_dir="raised")
    assert tiny_gpt.train(resume="raised", max_iters=7)[-1]["iter"] == 7

    def interrupt(event):
        if event["event"] == "step" and event["iter"] == 4:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        tiny_gpt.train(SMALL, max_iters=10_000_000, on_event=interrupt, out_dir="stopped")
    assert (Path("stopped") / "last" / "model.safetensors").exists()
    assert threading.active_count() < 20


@pytest.mark.parametrize("kind", ["start", "warning"])
def test_a_listener_that_raises_before_the_first_step_leaves_a_run_that_goes_on(kind):
    Path("my.txt").write_text("to be, or not to be, that is the question:\n" * 40, "utf-8")
    Path("empty.txt").touch()
    heard = []

    def listen(event):
        heard.append(event["event"])
        if event["event"] == kind:
            raise LookupError(kind)

    with pytest.raises(LookupError, match=kind):
        tiny_gpt.train(["my.txt", "empty.txt"], **SMALL, on_event=listen, out_dir="raised")
    assert heard[0] == "start" and "step" not in heard
    steps = [line["iter"] for line in tiny_gpt.train(resume="raised", verbose=False) if "lr" in line]
    assert steps == list(range(6))
    assert tiny_gpt.train(resume=True, verbose=False).folder.name == "raised"


def test_a_listener_that_raises_before_the_run_is_there_leaves_nothing():
    Path("my.txt").write_text("abcdefghijklm" * 40, "utf-8")
    gpt = model()
    gpt.tokenizer = tiny_gpt.Tokenizer.from_text("abcdefghijklm")
    gpt.save("saved")

    def listen(event):
        raise LookupError(event["text"])

    with pytest.raises(LookupError, match="the optimizer starts afresh"):
        tiny_gpt.train("my.txt", init_from="saved", max_iters=20, on_event=listen)
    assert sorted(path.name for path in Path(".").iterdir()) == ["my.txt", "saved"]


WATCHED = """
import json, os, signal, sys, threading, time, tiny_gpt
def watch():
    while not os.path.exists("new/out/config.toml"):
        time.sleep(1e-4)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=watch, daemon=True).start()
try:
    tiny_gpt.train(json.loads(sys.argv[1]), max_iters=10**7, out_dir="new/out", verbose=False)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_when_the_folder_appears_leaves_nothing_or_a_run_that_goes_on():
    for _ in range(3):
        command = [sys.executable, "-c", WATCHED, json.dumps(SMALL)]
        said = subprocess.run(command, capture_output=True, timeout=120)
        assert said.stdout == b"interrupted\n", said.stderr
        if Path("new").exists():
            tiny_gpt.train(resume="new/out", max_iters=1, verbose=False)
            shutil.rmtree("new")
            shutil.rmtree("runs")
        else:
            assert not Path("runs").exists()


def test_what_cannot_be_trained_is_said_and_leaves_no_folder():
    Path("short.txt").write_text("too short", "utf-8")
    for arguments, error, words in [
        (("no.txt", {}), OSError, "no.txt"),
        (("short.txt", {}), ValueError, "block_size"),
        ((None, {"learning_rte": 1e-3}), ValueError, "learning_rate"),
        ((None, {"n_head": 3, "n_embd": 8}), AssertionError, "n_embd = 8"),
        ((None, {"dropout": "much"}), ValueError, "dropout"),
        (([], {}), ValueError, "text names no file"),
        ((Path().glob("*.nothing"), {}), ValueError, "text names no file"),
        ((5, {}), TypeError, "text is a int"),
        (([b"no.txt", 5], {}), TypeError, "text is a int"),
        ((b"no.txt", {}), OSError, "no.txt"),
        ((None, {"init_from": model()}), TypeError, "init_from is a TinyGPT"),
        ((None, {"resume": 5}), TypeError, "resume is a int"),
    ]:
        source, settings = arguments
        with pytest.raises(error, match=words):
            tiny_gpt.train(source, **settings)
    assert not Path("runs/quick").exists()


def test_an_empty_name_of_a_run_to_go_on_with_starts_no_new_one():
    with pytest.raises((ValueError, OSError)):
        tiny_gpt.train(SMALL, resume="")
    with pytest.raises(ValueError, match="resume goes on with a run"):
        tiny_gpt.train(resume="", preset="quick")
    assert not Path("runs").exists()


def test_a_saved_model_is_the_same_when_loaded_and_nothing_else_is_overwritten():
    gpt, (idx, targets) = model(bias=False), batch()
    gpt.tokenizer = tiny_gpt.Tokenizer.from_text("abcdefghijklm")
    for _ in range(2):
        gpt.save("saved")
    again = tiny_gpt.load("saved", dtype="f32")
    assert torch.equal(again(idx, targets)[1], gpt(idx, targets)[1])
    assert again.tokenizer == gpt.tokenizer and again.config == gpt.config
    with pytest.warns(UserWarning, match="no tokenizer"):
        model(tied=False, activation="silu").to(torch.float64).save(Path("other"))
    assert tiny_gpt.load("other").config.activation == "silu"
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years", "utf-8")
    with pytest.raises(ValueError, match="thesis.txt|mine"):
        gpt.save("mine")
    for path, words in (("nowhere", "nowhere"), ("mine", "mine")):
        with pytest.raises((ValueError, OSError), match=words):
            tiny_gpt.load(path)


def test_the_program_opens_what_python_saved_and_python_what_the_program_trained():
    tinygpt = program()
    gpt = model()
    gpt.tokenizer = tiny_gpt.Tokenizer.from_text("abcdefghijk\nm")
    gpt.save("saved")
    sample = [tinygpt, "sample", "saved", "--prompt", "abc", "--max-new-tokens", "20"]
    options = ["--temperature", "0", "--dtype", "f32"]
    said = subprocess.run(sample + options, capture_output=True, text=True, timeout=60, check=True)
    assert gpt.write("abc", 20, temperature=0) in said.stdout
    flags = [f"--{key}={value}" for key, value in SMALL.items()]
    train = [tinygpt, "train", "--out-dir", "theirs", *flags]
    subprocess.run(train, capture_output=True, timeout=120, check=True)
    theirs = tiny_gpt.load("theirs")
    mine = tiny_gpt.train(SMALL, out_dir="mine")
    lines = (Path("theirs") / "metrics.jsonl").read_text("utf-8").splitlines()
    losses = [json.loads(line)["train/loss"] for line in lines]
    assert losses == [line["train/loss"] for line in mine]
    idx, targets = batch(2, 8, 65)
    assert torch.equal(theirs(idx, targets)[1], tiny_gpt.load("mine")(idx, targets)[1])
    assert tiny_gpt.train(resume="theirs", max_iters=7)[-1]["iter"] == 7


def test_a_tokenizer_is_exact_and_says_what_it_does_not_know():
    tokenizer = tiny_gpt.Tokenizer.from_text("naïve 你好 😊\n")
    text = "你好 naïve 😊"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tiny_gpt.Tokenizer(tokenizer.to_json()) == tokenizer
    with pytest.raises(ValueError, match="'x'|x"):
        tokenizer.encode("xn")
    assert tokenizer.decode([999]) == "\ufffd"
    with pytest.raises(IndexError):
        tokenizer.decode([-1])
    with pytest.raises(ValueError, match="empty"):
        tiny_gpt.Tokenizer.from_text("")


def test_gpt2s_tokens_are_those_of_tiktoken_and_need_no_network():
    gpt2 = tiny_gpt.Tokenizer.from_text("", "gpt2")
    assert gpt2.vocab_size == 50257
    assert gpt2.encode("Hello world, naïve") == [15496, 995, 11, 41492]
    assert gpt2.encode("abc abc") == [39305, 450, 66]
    assert gpt2.encode("<|endoftext|>", special=True) == [50256] != gpt2.encode("<|endoftext|>")
    assert len(gpt2.encode("^" * 1_000_000)) == 250_000
    assert gpt2.decode(gpt2.encode("😊")[:1]).count("\ufffd") >= 1
    with pytest.raises(ValueError, match="must be"):
        tiny_gpt.Tokenizer.from_text("abc", "words")


def test_a_data_set_of_nanogpts_is_named_as_there():
    Path("my.txt").write_text("to be, or not to be, that is the question:\n" * 40, "utf-8")
    with pytest.raises(ValueError, match="data/mine"):
        tiny_gpt.train(SMALL, dataset="mine")
    subprocess.run([program(), "prepare", "my.txt", "--out", "data/mine"], check=True)
    metrics = tiny_gpt.train(SMALL, dataset="mine", verbose=False)
    assert tiny_gpt.load(metrics.folder).config.vocab_size == 16
    with pytest.raises(ValueError, match="two texts"):
        tiny_gpt.train("my.txt", dataset="mine")
