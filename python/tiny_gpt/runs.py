"""Runs: training without a script of one's own, and models from the disk.

A run's folder is the one that the program `tinygpt` makes and opens: config.toml, metrics.jsonl,
loss.svg, samples.txt, and the checkpoints best/ and last/.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _engine, engine
from .model import GPTConfig, TinyGPT


class Metrics(list[dict[str, Any]]):
    """The lines of a run's metrics.jsonl, as dicts: a step has "lr", an evaluation "val/loss".

    `folder` is the run's: `tiny_gpt.load(metrics.folder)`.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
        super().__init__(json.loads(line) for line in lines)

    @property
    def best(self) -> float | None:
        """The lowest validation loss, in nats a token; none before the first evaluation."""
        losses = (line.get("val/loss") for line in self)
        return min((loss for loss in losses if loss is not None), default=None)


def train(
    text: str | os.PathLike | Sequence[str | os.PathLike] | Mapping[str, Any] | None = None,
    *,
    preset: str | None = None,
    resume: str | os.PathLike | None = None,
    on_event: Callable[[dict[str, Any]], Any] | None = None,
    verbose: bool = True,
    **settings: Any,
) -> Metrics:
    """Trains a model from scratch, or goes on with a run, and keeps it in a folder.

    The settings are those of `tinygpt train --help`, in nanoGPT's names. Ctrl-C, and an exception
    of `on_event`, save first.

    Args:
        text: a text file, several, a folder of them; a config file (.toml); a dict of settings;
            or None for Tiny Shakespeare.
        preset: "quick" (the default), "shakespeare-char", "gpt2".
        resume: the folder of a run to go on with; settings may change, not the model and its text.
        on_event: called with a dict as it goes. Its "event" is "step" or "evaluation", with the
            keys of a line of metrics; "start", with the "folder"; "sample" or "warning", with a
            "text".
        verbose: without `on_event`, print where the run is, its losses, and what is unusual.
        **settings: over those of the preset and of `text`; those that are None are left out.

    Returns:
        The run's metrics, a list of dicts with its `folder`.
    """
    files, config = [], None
    if isinstance(text, Mapping):
        settings = {**text, **settings}
    elif isinstance(text, (str, os.PathLike)):
        path = os.fspath(text)
        files, config = ([], path) if path.endswith(".toml") else ([path], None)
    elif text is not None:
        files = [os.fspath(path) for path in text]
    if on_event is None and verbose:
        on_event = show

    def hear(event: str) -> None:
        if on_event is not None:
            on_event(json.loads(event))

    typed = [(key, as_typed(value)) for key, value in settings.items() if value is not None]
    resume = None if resume is None else os.fspath(resume)
    return Metrics(Path(_engine.train(files, preset, config, typed, resume, hear)))


def show(event: dict[str, Any]) -> None:
    """Prints what a reader of nanoGPT's output looks for; nothing of single steps."""
    match event["event"]:
        case "start":
            print(f"run: {event['folder']}")
        case "evaluation":
            val = event.get("val/loss")
            told = "" if val is None else f", val loss {val:.4f}"
            print(f"step {event['iter']}: train loss {event['train/loss']:.4f}{told}", flush=True)
        case "warning":
            print(f"note: {event['text']}")


def as_typed(value: Any) -> str:
    """A setting as the command line has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def load(path: str | os.PathLike, **changes: Any) -> TinyGPT:
    """The model of a run (its best checkpoint), of a checkpoint's folder, or of another program: a
    folder in Hugging Face's layout, nanoGPT's ckpt.pt, a GGUF or safetensors file. In evaluation mode.

    Args:
        path: where it is; a name is looked for in runs/ too.
        **changes: fields of `GPTConfig` that say how it runs: dropout, engine, dtype.
    """
    config, path = _engine.read_config(os.fspath(path))
    fixed = set(json.loads(config)) - {"dropout"}
    if wrong := fixed & set(changes):
        raise ValueError(f"{', '.join(sorted(wrong))}: what a model is was decided in its training")
    model = TinyGPT(GPTConfig(**{**json.loads(config), **changes}), verbose=False)
    rust = engine.of(model)
    _engine.read_params(path, rust, [p.detach() for p in engine.parameters(model, rust)])
    model.tokenizer = _engine.read_tokenizer(path)
    return model.eval()
