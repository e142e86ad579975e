# SPDX-License-Identifier: MIT
"""What a producer asks of tracing. `tracing.py` answers with OpenTelemetry, an extra; without it, this module does."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol


class ProducerSpan(Protocol):
    """One operation of a producer."""

    def told(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """A job's options with the context of this operation, unless the job has one or wants none."""

    def note(self, **attributes: Any) -> None:
        """Attributes by short names: job_name, job_id, bulk_names, flow_name."""


class ProducerTelemetry(Protocol):
    """Makes spans."""

    def producing(
        self, operation: str, destination: str, queue: str
    ) -> AbstractContextManager[ProducerSpan]: ...


class NoSpan:
    """Tells nothing."""

    def told(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return options

    def note(self, **attributes: Any) -> None:
        """Nobody listens."""


_NO_SPAN = nullcontext(NoSpan())


def span_of(
    telemetry: ProducerTelemetry | None, operation: str, destination: str, queue: str
) -> AbstractContextManager[ProducerSpan]:
    """A span, or none."""
    return _NO_SPAN if telemetry is None else telemetry.producing(operation, destination, queue)
