"""The peers' side: a worker process for each setting, asked block by block."""

import json
import os
import subprocess
import tempfile
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from measure import Block, Pair, PeerError
from rows import Peer, Row, Setting

WORKER = Path(__file__).resolve().parent / "worker.py"
LONGEST_S = 600
"""What takes longer is given up: a compiler that does not end, numbers that are emulated."""
LAST_BYTES = 4096
"""As much of the end of standard error as is looked at."""
LONGEST_LINE = 200


def last_line(errors: IO[bytes]) -> str:
    """The last line that says something; empty without one."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - LAST_BYTES))
    lines = errors.read().decode(errors="replace").split("\n")
    return next((line.strip()[:LONGEST_LINE] for line in reversed(lines) if line.strip()), "")


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
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [python, str(WORKER), json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment,
        )
        self.parameters = 0
        self.late = False

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
        alarm = threading.Timer(LONGEST_S, self.give_up)
        alarm.start()
        line = self.process.stdout.readline()
        alarm.cancel()
        if not line:
            raise PeerError(self.last_words())
        try:
            answer = json.loads(line)
        except ValueError:
            raise PeerError(f"answered {line.strip()!r}") from None
        if isinstance(answer, dict) and "failed" in answer:
            raise PeerError(answer["failed"])
        return answer

    def give_up(self) -> None:
        """Ends a process that does not answer."""
        self.late = True
        self.process.kill()

    def last_words(self) -> str:
        """How it ended, and the last line that it wrote of it."""
        code = self.process.wait()
        if self.late:
            how = f"no answer within {LONGEST_S} s"
        elif code == -9:  # SIGKILL, which Windows has no name for
            how = "killed from outside, as happens when memory runs out"
        else:
            how = f"ended with code {code}"
        said = last_line(self.errors)
        return f"{how}; its last words: {said}" if said else how

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.communicate()
        self.errors.close()

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
