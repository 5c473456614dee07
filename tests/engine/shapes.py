"""Workflows in the shapes that scientists run (as the WfCommons collection describes them), at any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.engine.stage import task

Shape = Callable[[int], Iterator[dict[str, Any]]]


def blast(width: int) -> Iterator[dict[str, Any]]:
    """Broad: one splits, very many search, two collect."""
    yield task("split")
    searches = [f"blastall-{number}" for number in range(width)]
    yield from (task(name, "split") for name in searches)
    yield task("cat-blast", *searches)
    yield task("cat", *searches)


def montage(width: int) -> Iterator[dict[str, Any]]:
    """Images are projected, differences of neighbours fitted, and all of it brought together twice."""
    projects = [f"project-{number}" for number in range(width)]
    yield from (task(name) for name in projects)
    fits = []
    for number in range(width):
        for step in (1, 2, 3):
            neighbour = (number + step) % width
            if neighbour != number:
                fits.append(f"fit-{number}-{step}")
                yield task(fits[-1], projects[number], projects[neighbour])
    yield task("concat-fit", *fits)
    yield task("model", "concat-fit")
    backgrounds = [f"background-{number}" for number in range(width)]
    yield from (task(name, "model", project) for name, project in zip(backgrounds, projects, strict=True))
    yield task("table", *backgrounds)
    yield task("add", "table", *backgrounds)
    yield task("view", "add")


def epigenomics(width: int) -> Iterator[dict[str, Any]]:
    """Many chains of four steps side by side, merged for each lane and then as a whole."""
    merges = []
    for lane in range(4):
        yield task(f"split-{lane}")
        ends = []
        for number in range(width):
            before = f"split-{lane}"
            for step in ("filter", "convert", "pack", "map"):
                name = f"{step}-{lane}-{number}"
                yield task(name, before)
                before = name
            ends.append(before)
        merges.append(f"merge-{lane}")
        yield task(merges[-1], *ends)
    yield task("merge-all", *merges)
    yield task("index", "merge-all")
    yield task("pileup", "index")


def cycles(width: int) -> Iterator[dict[str, Any]]:
    """Diamonds: each baseline is varied, the variants compared, and everything summed up."""
    outcomes = []
    for number in range(width):
        yield task(f"baseline-{number}")
        variants = [f"cycles-{number}-{step}" for step in range(4)]
        yield from (task(name, f"baseline-{number}") for name in variants)
        yield task(f"parse-{number}", *variants)
        yield task(f"compare-{number}", f"parse-{number}", f"baseline-{number}")
        outcomes.append(f"compare-{number}")
    yield task("summary", *outcomes)
    yield task("plots", "summary", *outcomes)


def genome(width: int) -> Iterator[dict[str, Any]]:
    """Chromosomes side by side: individuals merged, and each population compared with the merge and the sifting."""
    for chromosome in range(width):
        individuals = [f"individuals-{chromosome}-{number}" for number in range(25)]
        yield from (task(name) for name in individuals)
        merge, sifting = f"merge-{chromosome}", f"sifting-{chromosome}"
        yield task(merge, *individuals)
        yield task(sifting)
        for population in range(7):
            yield task(f"overlap-{chromosome}-{population}", merge, sifting)
            yield task(f"frequency-{chromosome}-{population}", merge, sifting)


def chain(length: int) -> Iterator[dict[str, Any]]:
    """Deep: one after the other."""
    for number in range(length):
        yield task(f"step-{number}", *([f"step-{number - 1}"] if number else []))


# With how wide each is to be for one to two thousand tasks.
SHAPES: dict[str, tuple[Shape, int]] = {
    "blast": (blast, 1_500),
    "montage": (montage, 250),
    "epigenomics": (epigenomics, 75),
    "cycles": (cycles, 200),
    "1000genome": (genome, 30),
    "chain": (chain, 300),
}
