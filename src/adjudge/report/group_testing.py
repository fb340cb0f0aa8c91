"""This module finds the wrong ones among many candidates from residuals of weighted sums of them.

Group testing is due to Dorfman (1943), and naming a single error by a second, weighted sum to Huang
and Abraham's checksums (IEEE Trans. Comput. C-33, 1984). Their combination under error bars is
ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import SIGNIFICANT_BARS
from adjudge.floats import Vector

Indices = NDArray[np.intp]

MOST_NAMED = 8
"""The search ends with this many wrong candidates, because nobody reads a longer list."""
MOST_BLOCKS = 12
"""The search ends with more disjoint wrong blocks than this: there are more errors than are named,
and halving them all would cost as much as testing every candidate."""


@dataclass(frozen=True)
class Residual:
    """The deviation of a weighted sum of candidates, with its error bar."""

    value: float
    error: float

    @property
    def significant(self) -> bool:
        """Says whether anything in the sum is wrong; a residual that is not finite says so, too."""
        return not np.isfinite(self.value) or abs(self.value) > SIGNIFICANT_BARS * self.error

    def __sub__(self, other: Residual) -> Residual:
        """Returns the residual of the candidates that are in this sum and not in the other."""
        with np.errstate(all="ignore"):
            return Residual(self.value - other.value, float(np.hypot(self.error, other.error)))


@dataclass
class Search:
    """Finds the wrong candidates among `size`.

    `measure(weights)` gives the weights that were really taken and the residual of that sum.
    `test(k)` gives the residual of candidate `k` alone, with weight 1, and whether it is wrong by
    itself. Where all of a block are wrong, the largest by `magnitude` stands for it.

    One wrong candidate `k` leaves the residual `r` under equal weights, and `r w_k` under weights
    `w`: the ratio of the two names it. Several wrong ones are first separated by halving blocks,
    with `O(k log n)` sums.
    """

    size: int
    measure: Callable[[Vector], tuple[Vector, Residual]]
    test: Callable[[int], tuple[Residual, bool]]
    magnitude: Vector
    enough: Callable[[int], bool] = lambda wrong: wrong >= MOST_NAMED
    """Says whether the search may end with so many found."""
    wrong: list[int] = field(default_factory=list)
    tested: dict[int, Residual] = field(default_factory=dict)
    many: bool = False
    """Says whether more are wrong than are named."""

    def _done(self) -> bool:
        """Returns whether enough was found, or spent."""
        return self.enough(len(self.wrong))

    def run(self, total: Residual) -> None:
        """Searches; `total` is the residual under equal weights."""
        everything: Indices = np.arange(self.size)
        rest = self._remove_single(everything, total)
        blocks = [] if rest is None else [rest]
        depth = 0
        while blocks and not self._done():
            if len(blocks) > MOST_BLOCKS:
                self.many = True
                self._sample(blocks)
                return
            halves = [[block] if self._done() else self._halves(*block) for block in blocks]
            blocks = [half for pair in halves for half in pair]
            depth += 1
            # Some blocks are right, so the others may hold one error each.
            if len(blocks) < 2**depth:
                rests = [self._remove_single(*block) for block in blocks]
                blocks = [rest for rest in rests if rest is not None]
        self.many = bool(blocks)

    def _test(self, k: int) -> Residual:
        """Returns the residual of candidate `k` alone, which is measured once."""
        if k not in self.tested:
            self.tested[k], wrong = self.test(k)
            if wrong:
                self.wrong.append(k)
        return self.tested[k]

    def _remove_single(self, block: Indices, total: Residual) -> tuple[Indices, Residual] | None:
        """Returns the block and its residual without the only wrong candidate; `None` if that
        explains all of it.
        """
        if self._done():
            return block, total
        k = self._only_candidate(block, total)
        if k is None:
            return block, total
        alone = self._test(k)
        rest = total - alone
        if block.size == 1 or (np.isfinite(rest.value) and not rest.significant):
            return None
        return (block[block != k], rest) if alone.significant else (block, total)

    def _only_candidate(self, block: Indices, total: Residual) -> int | None:
        """Returns the only wrong candidate of the block, if there is but one."""
        if not np.isfinite(total.value):
            return None if block.size > 1 else int(block[0])
        while block.size > 1 and not self._done():
            kept = self._candidates(
                block, np.asarray(np.linspace(1, 2, block.size), np.float64), total
            )
            # The weights may be too coarse, or their differences drowned by the error bar: then two
            # weights tell the halves apart.
            if 2 * kept.size > block.size:
                kept = self._candidates(
                    block, (np.arange(block.size) < block.size // 2).astype(np.float64), total
                )
            if not 0 < 2 * kept.size <= block.size + 1:
                return None
            block = kept
        return int(block[0]) if block.size == 1 else None

    def _candidates(self, block: Indices, weights: Vector, total: Residual) -> Indices:
        """Returns the candidates that would have caused this residual alone."""
        taken, found = self._measured(block, weights)
        with np.errstate(all="ignore"):
            gap = np.abs(taken * total.value - found.value)
            return block[gap <= SIGNIFICANT_BARS / 2 * (found.error + np.abs(taken) * total.error)]

    def _measured(self, block: Indices, weights: Vector) -> tuple[Vector, Residual]:
        """Returns the weights that were really taken within the block, and the residual."""
        whole = np.zeros(self.size)
        whole[block] = weights
        taken, found = self.measure(whole)
        return taken[block], found

    def _halves(self, block: Indices, total: Residual) -> list[tuple[Indices, Residual]]:
        """Returns the halves with a significant residual."""
        if block.size == 1:
            self._test(int(block[0]))
            return []
        one, two = block[: block.size // 2], block[block.size // 2 :]
        first = self._measured(one, np.ones(one.size))[1]
        second = total - first
        if not np.isfinite(second.value):
            second = self._measured(two, np.ones(two.size))[1]
        return [(half, r) for half, r in ((one, first), (two, second)) if r.significant]

    def _sample(self, blocks: list[tuple[Indices, Residual]]) -> None:
        """Tests one candidate of each of the worst blocks, and halves the worst block where all of
        these are right.
        """
        blocks = sorted(blocks, key=lambda b: -abs(np.nan_to_num(b[1].value, nan=np.inf)))
        for block, _ in blocks[:MOST_NAMED]:
            if not self._done():
                self._test(int(block[np.argmax(np.nan_to_num(self.magnitude[block]))]))
        block, total = blocks[0]
        while not self.wrong and block.size > 1 and not self._done():
            halves = self._halves(block, total)
            if not halves:
                return
            block, total = max(halves, key=lambda b: abs(np.nan_to_num(b[1].value, nan=np.inf)))
        if not self.wrong and not self._done():
            self._test(int(block[0]))
