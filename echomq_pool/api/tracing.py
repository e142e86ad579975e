# SPDX-License-Identifier: MIT
"""Tracing by OpenTelemetry (the extra `otel`), with BullMQ's names of spans and attributes.

Producers: `Queue("orders", url=url, telemetry=Tracing())`, likewise for `FlowProducer` and their synchronous twins. The
context travels inside the job, where Node's workers find it.
Workers: `middleware = ["echomq_pool.api.tracing:traced"]`, or `Worker(…, middleware=[traced])`. Each run is a span
under the context that the producer, Python or Node, has put into the job. Exporters are set up as the SDK wants it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any

try:
    from opentelemetry import context as contexts
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
except ImportError as error:
    raise ImportError('tracing needs OpenTelemetry: pip install "echomq-pool[otel]"') from error

from echomq_pool.clock import SYSTEM_CLOCK

LIBRARY = "echomq-pool"

_ATTRIBUTES = {
    "job_name": "bullmq.job.name",
    "job_id": "bullmq.job.id",
    "bulk_names": "bullmq.job.bulk.names",
    "bulk_count": "bullmq.job.bulk.count",
    "flow_name": "bullmq.flow.name",
}


class Tracing:
    """Spans of a producer. `tracer`: default is the SDK's own for this library."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer or trace.get_tracer(LIBRARY)

    @contextmanager
    def producing(self, operation: str, destination: str, queue: str) -> Iterator[_Producing]:
        """One operation as a span; its context is put into the jobs that it adds."""
        name = f"{operation} {destination}"
        with self._tracer.start_as_current_span(name, kind=SpanKind.PRODUCER) as span:
            span.set_attributes({"bullmq.queue.name": queue, "bullmq.queue.operation": operation})
            yield _Producing(span)


class _Producing:
    """The span of one operation (`ProducerSpan`)."""

    def __init__(self, span: Span) -> None:
        self._span = span
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        self._metadata = json.dumps(carrier)

    def told(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        given = options.get("telemetry") or {}
        omit = given.get("omitContext") or given.get("omit_context")
        if given.get("metadata") or omit:
            return options
        return {**options, "telemetry": {"metadata": self._metadata}}

    def note(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            self._span.set_attribute(_ATTRIBUTES[name], value)


class JobTracing:
    """A middleware: one span per run."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer
        self._current: ContextVar[tuple[Span, Token[Context]] | None] = ContextVar("traced", default=None)

    def on_start(self, job: Any) -> None:
        tracer = self._tracer or trace.get_tracer(LIBRARY)
        span = tracer.start_span(f"process {job.queue_name}", parent_of(job), kind=SpanKind.CONSUMER)
        span.set_attributes(
            {
                "bullmq.queue.name": job.queue_name,
                "bullmq.queue.operation": "process",
                "bullmq.worker.id": job.token.rpartition(":")[0],
                "bullmq.worker.name": job.processed_by or "",
                "bullmq.job.id": job.id,
                "bullmq.job.name": job.name,
            }
        )
        self._current.set((span, contexts.attach(trace.set_span_in_context(span))))

    def on_success(self, job: Any, result: Any) -> None:
        self._told(job, "job completed", {"bullmq.job.result": json.dumps(result, default=str)})

    def on_failure(self, job: Any, error: BaseException) -> None:
        self._told(job, "job failed", {"bullmq.job.failed.reason": str(error)})
        current = self._current.get()
        if current is not None:
            current[0].record_exception(error)
            current[0].set_status(Status(StatusCode.ERROR, str(error)))

    def on_end(self, job: Any) -> None:
        current = self._current.get()
        if current is None:
            return
        span, token = current
        self._current.set(None)
        contexts.detach(token)
        span.set_attribute("bullmq.job.attempt_finished_timestamp", SYSTEM_CLOCK.now_ms())
        if job.processed_on:
            span.set_attribute("bullmq.job.processed.timestamp", job.processed_on)
        span.end()

    def _told(self, job: Any, event: str, attributes: dict[str, str]) -> None:
        current = self._current.get()
        if current is not None:
            current[0].add_event(event, attributes)
            current[0].set_attribute("bullmq.job.attempts.made", job.attempts_made + 1)


def parent_of(job: Any) -> Context | None:
    """The context that the job carries; None when it has none, or one that cannot be read."""
    metadata = (job.opts.get("telemetry") or {}).get("metadata")
    try:
        carrier = json.loads(metadata) if isinstance(metadata, str) else None
    except ValueError:
        return None
    if not isinstance(carrier, dict):
        return None
    return propagate.extract({key: value for key, value in carrier.items() if isinstance(value, str)})


traced = JobTracing()
