# SPDX-License-Identifier: MIT
"""Who stops and who starts when a child has died: a pure function of the specifications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from echomq_pool.supervisor.spec import Restart, Spec, Strategy


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop that child, if it lives; the next step follows when it has ended."""

    id: str


@dataclass(frozen=True, slots=True)
class Start:
    """Start that child; the next step follows its ack."""

    id: str


def plan(strategy: Strategy, specs: Sequence[Spec], dead: str) -> list[Stop | Start]:
    """The steps, in order, that bring a group back after the child `dead` has ended.

    one_for_all and rest_for_one start every specification of the round, also one that an operator had stopped
    or that had ended for good. Temporary bystanders are stopped and not started: their arguments are not kept.
    """
    if strategy in (Strategy.ONE_FOR_ONE, Strategy.DYNAMIC):
        return [Start(dead)]
    place = next(i for i, spec in enumerate(specs) if spec.id == dead)
    members = specs if strategy is Strategy.ONE_FOR_ALL else specs[place:]
    stops = [Stop(spec.id) for spec in reversed(members) if spec.id != dead]
    starts = [Start(s.id) for s in members if s.id == dead or s.restart is not Restart.TEMPORARY]
    return [*stops, *starts]
