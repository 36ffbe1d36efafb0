"""Who is faster, and by how much: blocks of work in turn, medians, ratios of pairs.

A machine's speed drifts: with its temperature, with its neighbours. So a peer is only ever compared
with the block of TinyGPT that ran right before its own, and what counts of many such pairs is the
median.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

Block = list[float]
"""Milliseconds of each unit of a block: a step of training, a token of a text."""

Runner = Callable[[], Block]

LEAST_ROUNDS = 2
"""A single pair would not show how much a ratio moves."""


class PeerError(Exception):
    """Why a peer cannot be measured, or not any more."""


@dataclass(frozen=True)
class Pair:
    """A block of TinyGPT and the peer's block right after it."""

    ours: Block
    peer: Block

    @property
    def ratio(self) -> float:
        """How many times as fast as the peer TinyGPT was; below 1 it was slower."""
        return median(self.peer) / median(self.ours)


@dataclass(eq=False)
class Race:
    """TinyGPT and a peer in turn."""

    ours: Runner
    peer: Runner
    pairs: list[Pair] = field(default_factory=list)
    failed: str = ""

    def turn(self) -> None:
        """One more pair. If the peer fails no pair counts: it may have been failing before."""
        block = self.ours()
        try:
            self.pairs.append(Pair(block, self.peer()))
        except PeerError as error:
            self.pairs, self.failed = [], str(error)


def in_turn(
    races: Sequence[Race],
    rounds: int,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Runs a pair of each race, `rounds` times over, or as many as begin within `seconds`, at least
    twice if there are two. A race whose peer fails ends there; the others go on."""
    end = clock() + seconds
    for done in range(1, rounds + 1):
        for race in races:
            if not race.failed:
                race.turn()
        if done >= LEAST_ROUNDS and clock() >= end:
            break


def ratio(pairs: Sequence[Pair]) -> float:
    """The median of the pairs' ratios."""
    return median(pair.ratio for pair in pairs)


def unit_ms(blocks: Sequence[Block]) -> float:
    """The median of the blocks' medians, so that no block counts for more than another."""
    return median(median(block) for block in blocks)


def units_in(seconds: float, each_ms: float, least: int = 2, most: int = 50) -> int:
    """Units of a block that is to take about `seconds`."""
    return min(max(round(seconds * 1e3 / each_ms), least), most)
