"""In what order candidates are tried: weights, tempered by noise that belongs to the candidate and not to the arm."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from hashlib import blake2b

from pairtrial.harness.tinker.candidates import Candidate
from pairtrial.harness.tinker.localise import Focus

TEMPERATURE = 0.5


def gumbel(seed: int, identity: str) -> float:
    """Standard Gumbel noise from (seed, identity) alone: two arms at one seed share it, so they differ less by chance."""
    digest = blake2b(f"{seed}\0{identity}".encode(), digest_size=8).digest()
    uniform = (int.from_bytes(digest, "big") + 0.5) / 2**64
    return -math.log(-math.log(uniform))


def first_candidates(candidates: Iterable[Candidate], focus: Focus, seed: int, count: int) -> list[Candidate]:
    """The first ``count`` candidates by log weight + temperature × noise; ties by identity."""

    def key(candidate: Candidate) -> tuple[float, str]:
        noise = gumbel(seed, candidate.identity)
        return -(math.log(focus.weight(candidate)) + TEMPERATURE * noise), candidate.identity

    return heapq.nsmallest(count, candidates, key=key)
