"""Runs: training without a script of one's own, and models from the disk.

A run's folder is the one that the program `tinygpt` makes and opens: config.toml, metrics.jsonl,
loss.svg, samples.txt, and the checkpoints best/ and last/.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    init_from: str | os.PathLike | None = None,
    resume: str | os.PathLike | bool | None = None,
    overwrite: bool = False,
    on_event: Callable[[dict[str, Any]], Any] | None = None,
    verbose: bool = True,
    **settings: Any,
) -> Metrics:
    """Trains a model, from scratch or from weights, or goes on with a run, in a folder of its own.

    The settings are those of `tinygpt train --help`, in nanoGPT's names. From the event "start" on,
    Ctrl-C or an exception of `on_event` saves first; before, it leaves nothing.

    Args:
        text: a file, a folder of .txt files or of nanoGPT's tokens, or several; a config file (.toml,
            or nanoGPT's .py); a dict of settings; or None for Tiny Shakespeare.
        preset: "quick" (the default), "shakespeare-char", "gpt2", or another of `tinygpt train --help`.
        init_from: weights to start from: a run, a checkpoint, or a model as `load` takes it.
        resume: the folder of a run to go on with (settings may change, not the model and its text),
            True for the newest, or a ckpt.pt of nanoGPT's, with `text`.
        overwrite: replace the run in `out_dir`.
        on_event: called with a dict as it goes. Its "event" is "step" or "evaluation", with the
            keys of a line of metrics (losses in nats a token); "start", with the "folder"; "sample"
            or "warning", with a "text".
        verbose: without `on_event`, print where the run is, its losses, and what is unusual.
        **settings: over those of the preset and of `text`; those that are None are left out.

    Returns:
        The run's metrics, a list of dicts with its `folder`.

    Raises:
        ValueError: a setting, a text or a model that cannot be used; it says what to do.
        OSError: a file that cannot be read or written.
        FloatingPointError: a loss that is not finite; the checkpoints before it are whole.
    """
    files, config = [], None
    if isinstance(text, Mapping):
        settings = {**text, **settings}
    elif isinstance(text, (str, bytes, os.PathLike)):
        path = as_path("text", text)
        files, config = ([], path) if path.endswith((".toml", ".py")) else ([path], None)
    elif text is not None:
        if not isinstance(text, Iterable):
            raise TypeError(f"text is a {type(text).__name__}; expected a path, or several")
        files = [as_path("text", path) for path in text]
        if not files:
            raise ValueError(
                "text names no file: a pattern that matched none? None is the built-in Tiny Shakespeare"
            )
    goes_on = resume is not None and resume is not False
    if goes_on:
        given = dict(preset=preset, init_from=init_from, overwrite=overwrite, config=config)
        if wrong := [name for name, value in given.items() if value]:
            raise ValueError(f"resume goes on with a run; {wrong[0]} is for a new one")
    if on_event is None and verbose:
        on_event = show

    def hear(event: str) -> None:
        if on_event is not None:
            on_event(json.loads(event))

    folder = _engine.train(
        files,
        preset,
        config,
        [(key, as_typed(value)) for key, value in settings.items() if value is not None],
        hear,
        init_from=None if init_from is None else as_path("init_from", init_from),
        resume=as_path("resume", resume) if goes_on and resume is not True else None,
        newest=resume is True,
        overwrite=overwrite,
    )
    return Metrics(Path(folder))


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


def as_path(name: str, path: Any) -> str:
    """The argument of that name as a path."""
    try:
        return os.fsdecode(path)
    except TypeError:
        raise TypeError(f"{name} is a {type(path).__name__}; expected a path") from None


def as_typed(value: Any) -> str:
    """A setting as the command line has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def load(path: str | os.PathLike, **changes: Any) -> TinyGPT:
    """The model of a run (its best checkpoint), of a checkpoint's folder, or of another program: a
    folder in Hugging Face's layout, nanoGPT's ckpt.pt, a GGUF or safetensors file. In evaluation mode.

    Args:
        path: where it is; a name is looked for in runs/ too.
        **changes: fields of `GPTConfig` that say how it runs: dropout, engine, dtype.

    Raises:
        ValueError: what is there is no model, or a damaged one.
        OSError: a file that cannot be read.
    """
    return read(TinyGPT, path, changes, verbose=False).eval()


def read(
    cls: type[TinyGPT], path: str | os.PathLike, changes: dict[str, Any], verbose: bool
) -> TinyGPT:
    """The model of any format at a path, with its tokenizer; what was assumed is a warning."""
    config, path, notices = _engine.read_config(os.fspath(path))
    fixed = set(json.loads(config)) - {"dropout"}
    if wrong := fixed & set(changes):
        raise ValueError(f"{', '.join(sorted(wrong))}: what a model is was decided in its training")
    for notice in notices:
        warnings.warn(f"{path}: {notice}", stacklevel=3)
    model = cls(GPTConfig(**{**json.loads(config), **changes}), verbose=verbose)
    rust = engine.of(model)
    params = [p.detach() for p in engine.parameters(model, rust)]
    model.tokenizer = _engine.read_model(path, rust, params)
    return model
