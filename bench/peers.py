"""The peers' side: a worker process for each setting, asked block by block."""

import json
import os
import subprocess
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from measure import Block, Pair
from rows import Peer, Row, Setting

WORKER = Path(__file__).resolve().parent / "worker.py"
LONGEST_S = 600
"""What takes longer is given up: a compiler that does not end, numbers that are emulated."""


class PeerError(Exception):
    """Why a setting cannot be measured here."""


class Worker:
    """A setting of a peer, ready to run blocks of a row's work."""

    def __init__(self, python: str, row: Row, peer: Peer, setting: Setting, threads: int):
        job = {
            "job": peer.job,
            "setting": asdict(setting),
            "shape": asdict(row.shape),
            "batch_size": row.batch_size,
            "threads": threads,
        }
        number = str(threads)
        environment = os.environ | {"OMP_NUM_THREADS": number, "MKL_NUM_THREADS": number}
        self.process = subprocess.Popen(
            [python, str(WORKER), json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.parameters = 0

    def start(self) -> None:
        """Waits until it is compiled and warm."""
        self.parameters = self.answer()

    def block(self, units: int) -> Block:
        """Milliseconds of each of so many units."""
        try:
            print(units, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass  # the answer that is missing says why
        return self.answer()

    def answer(self) -> Any:
        """The next line that it writes."""
        alarm = threading.Timer(LONGEST_S, self.process.kill)
        alarm.start()
        line = self.process.stdout.readline()
        alarm.cancel()
        if not line:
            code = self.process.wait()
            raise PeerError(f"ended with code {code}, out of memory or after {LONGEST_S} s")
        answer = json.loads(line)
        if isinstance(answer, dict) and "failed" in answer:
            raise PeerError(answer["failed"])
        return answer

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.communicate()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(eq=False)
class Candidate:
    """A setting of a peer in a row, and what came of it."""

    peer: Peer
    setting: Setting
    worker: Worker | None
    trial_ms: float | None = None
    skipped: str = ""
    pairs: list[Pair] = field(default_factory=list)

    def drop(self, reason: str = "") -> None:
        """Takes it out of the race."""
        self.worker.close()
        self.worker, self.skipped = None, reason
