"""Where and with what was measured: everything that a number means nothing without."""

import json
import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TOLD = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16", "sve")
"""Instruction sets that matter to a matrix product, as Linux names them."""


def output(*command: str) -> str:
    """What a command writes, in one line; empty if it cannot."""
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return ""
    return ran.stdout.strip()


def cpu_field(*names: str) -> str:
    """The first of these fields of Linux's /proc/cpuinfo; empty elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    fields = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    return next((fields[name] for name in names if name in fields), "")


def about(program: Path, threads: int) -> dict[str, Any]:
    """The machine, the versions, the commit, the date and the command."""
    flags = cpu_field("flags", "Features").split()
    brand = output("sysctl", "-n", "machdep.cpu.brand_string") if sys.platform == "darwin" else ""
    changed = "" if output("git", "status", "--porcelain", "--", "crates") == "" else ", changed"
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "command": " ".join(["python", "bench/compare.py", *sys.argv[1:]]),
        "processor": cpu_field("model name") or brand or platform.processor() or "unknown",
        "cpus": os.cpu_count(),
        "threads": threads,
        "instruction_sets": [flag for flag in TOLD if flag in flags],
        "system": f"{platform.system()} {platform.machine()}",
        "tinygpt": output(str(program), "--version").removeprefix("tinygpt "),
        "commit": output("git", "rev-parse", "--short=12", "HEAD") + changed,
        "rustc": output("rustc", "--version").removeprefix("rustc "),
        "python": platform.python_version(),
    }


def multiplies_bf16() -> bool:
    """Whether the processor does it itself; a library that makes f32 of it first takes ten times as
    long as with f32. Elsewhere than on Linux nobody says, and it is tried."""
    flags = cpu_field("flags", "Features").split()
    return not flags or any(flag in flags for flag in ("avx512_bf16", "amx_bf16", "bf16"))


def usable_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


FIND = """
import importlib.util, importlib.metadata, json, sys
found = [name for name in sys.argv[1:] if importlib.util.find_spec(name)]
print(json.dumps({name: importlib.metadata.version(name) for name in found}))
"""


def packages(python: str, names: tuple[str, ...]) -> dict[str, str]:
    """The versions of those packages that this Python has."""
    return json.loads(output(python, "-c", FIND, *names) or "{}")
