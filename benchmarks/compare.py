# SPDX-License-Identifier: MIT
"""`python -m benchmarks.compare`: the same work on the same server by echomq-pool and by what one would take instead.

Each peer lives in a throw-away environment. Every measure is taken of one peer after the other, round by round, so
that a noisy minute hits all of them. A peer that fails is a row with the reason, never a missing row.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers.catalog import PEERS, Peer
from benchmarks.support import contest, environments, targets
from benchmarks.support.contest import Arena, Contestant, Sizes
from benchmarks.support.report import Report, server_version
from tests.support.servers import Server, binary

RESULTS = Path(__file__).resolve().parents[1] / ".benchmarks"
Measure = Callable[[Contestant, Sizes], dict[str, Any]]


def main(argv: list[str]) -> int:
    options = parse(argv)
    chosen = [peer for peer in PEERS if not options.only or peer.name in options.only.split(",")]
    sizes = contest.SIZES["quick" if options.quick else "tiny" if options.tiny else "full"]
    report = Report("compare", server_version(binary(options.server)))
    with folder(options.environments) as base, Arena(Server(options.server).start()) as arena:
        contestants = list(enter(chosen, base, arena, report))
        results: dict[str, dict[str, dict[str, Any]]] = {}
        for title, (measure, method) in contest.MEASURES.items():
            if options.measures and title.split(":")[0] not in options.measures.split(","):
                continue
            results[title.split(":")[0]] = run(title, method, measure, contestants, sizes, report)
        targets.against_peers(report.row, results)
    print("\n".join(report.lines()), flush=True)
    report.write(RESULTS / "compare.json")
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of peers, with commas between")
    parser.add_argument("--measures", default="", help="first words of the titles, with commas between")
    parser.add_argument("--quick", action="store_true", help="fewer jobs and rounds, shorter limits")
    parser.add_argument("--tiny", action="store_true", help="only to see that everything runs")
    parser.add_argument("--server", choices=("valkey", "redis"), default="valkey")
    parser.add_argument("--environments", default="", help="a folder of environments to use and to keep")
    return parser.parse_args(argv)


@contextmanager
def folder(path: str) -> Iterator[Path]:
    """Where the environments are: thrown away at the end unless one was named."""
    if path:
        Path(path).mkdir(parents=True, exist_ok=True)
        yield Path(path).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="echomq-compare-") as temporary:
        yield Path(temporary)


def enter(chosen: list[Peer], base: Path, arena: Arena, report: Report) -> Iterator[Contestant]:
    """Prepares each peer; who cannot be installed has a row that says so."""
    for peer in chosen:
        say(f"preparing {peer.name}")
        try:
            environment = environments.prepare(peer, base)
        except environments.Unavailable as error:
            report.row("Versions", contest.VERSIONS, peer=peer.name, version="", note=str(error))
            continue
        report.row("Versions", contest.VERSIONS, peer=peer.name, version=environment.version, note="")
        yield Contestant(peer, environment, arena)


def run(
    title: str, method: str, measure: Measure, contestants: list[Contestant], sizes: Sizes, report: Report
) -> dict[str, dict[str, Any]]:
    """One measure: all contestants in turn, as many rounds as the sizes say; the medians are reported and returned."""
    results: dict[str, list[dict[str, Any]]] = {c.peer.name: [] for c in contestants}
    faults: dict[str, str] = {}
    rounds = sizes.rounds if title in contest.REPEATED else 1
    for _ in range(rounds):
        for contestant in contestants:
            name = contestant.peer.name
            if name in faults:
                continue
            try:
                results[name].append(measure(contestant, sizes))
            except Exception as error:  # an edge: whatever a peer does, the others go on
                faults[name] = f"{type(error).__name__}: {error}"[:300]
            say(f"{title} | {name} | {faults.get(name) or results[name][-1]}")
    medians = {name: contest.median_of(rows) for name, rows in results.items()}
    for name, values in medians.items():
        report.row(title, method, peer=name, **values, note=faults.get(name, ""))
    return medians


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
