# SPDX-License-Identifier: MIT
"""Traces that go through a job, with BullMQ's names."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from echomq_pool import FlowProducer, InputError, Job, JobFailed, Queue, SyncQueue, Worker
from echomq_pool.api.tracing import JobTracing, Tracing
from tests.support.planes import Bench
from tests.support.servers import Server
from tests.support.waiting import eventually_async


class Spans:
    """A tracer, and what it has recorded."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


def test_without_the_extra_tracing_says_what_to_install() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import echomq_pool.api.tracing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        'ImportError: tracing needs OpenTelemetry: pip install "echomq-pool[otel]"'
    )


@pytest.fixture
def spans() -> Spans:
    return Spans()


def carried(bench: Bench, job_id: str) -> str | None:
    """The trace id in a stored job."""
    metadata = json.loads(bench.get(job_id)["opts"]).get("tm")
    return None if metadata is None else json.loads(metadata)["traceparent"].split("-")[1]


def trace_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return format(span.context.trace_id, "032x")


async def test_a_run_is_a_child_of_the_span_that_added_its_job(
    server: Server, bench: Bench, spans: Spans
) -> None:
    inside: list[Any] = []

    async def handle(job: Job) -> str:
        inside.append(trace.get_current_span().get_span_context().trace_id)
        if job.name == "bad":
            raise ValueError("no luck")
        return "done"

    name = bench.keys.queue
    async with (
        Queue(name, url=server.url, telemetry=Tracing(spans.tracer)) as queue,
        Worker(name, handle, url=server.url, middleware=[JobTracing(spans.tracer)]),
    ):
        with spans.tracer.start_as_current_span("request"):
            good, bad = await queue.add("good"), await queue.add("bad")
        await good.wait_until_finished(10)
        with pytest.raises(JobFailed):
            await bad.wait_until_finished(10)
        await eventually_async(lambda: len(spans.named(f"process {name}")) == 2)
    (request,) = spans.named("request")
    (add,) = spans.named(f"add {name}.good")
    first, second = spans.named(f"process {name}")
    assert {trace_id(span) for span in (request, add, first, second)} == {carried(bench, good.id)}
    assert first.parent is not None
    assert add.context is not None
    assert first.parent.span_id == add.context.span_id
    assert (add.kind, first.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert add.attributes is not None
    assert dict(add.attributes) == {
        "bullmq.queue.name": name,
        "bullmq.queue.operation": "add",
        "bullmq.job.name": "good",
        "bullmq.job.id": good.id,
    }
    assert first.attributes is not None
    assert (first.attributes["bullmq.job.id"], first.attributes["bullmq.job.attempts.made"]) == (good.id, 1)
    assert [event.name for event in first.events] == ["job completed"]
    assert [event.name for event in second.events] == ["job failed", "exception"]
    assert second.status.status_code is StatusCode.ERROR
    assert inside[0] == first.context.trace_id if first.context else False


async def test_the_context_is_left_out_where_a_job_says_so(
    server: Server, bench: Bench, spans: Spans
) -> None:
    async with Queue(bench.keys.queue, url=server.url, telemetry=Tracing(spans.tracer)) as queue:
        silent = await queue.add("n", telemetry={"omit_context": True})
        own = await queue.add("n", telemetry={"metadata": '{"traceparent":"00-ab-cd-01"}'})
        bulk = await queue.add_bulk([("n", None), ("n", None, {"telemetry": {"omitContext": True}})])
    assert json.loads(bench.get(silent.id)["opts"]) == {"attempts": 0, "omc": True}
    assert carried(bench, own.id) == "ab"
    assert (carried(bench, bulk[0].id) is None, carried(bench, bulk[1].id)) == (False, None)
    (span,) = spans.named(f"addBulk {bench.keys.queue}")
    assert span.attributes is not None
    assert span.attributes["bullmq.job.bulk.count"] == 2


async def test_every_node_of_a_flow_carries_the_context(server: Server, bench: Bench, spans: Spans) -> None:
    q = bench.keys.queue
    async with FlowProducer(url=server.url, telemetry=Tracing(spans.tracer)) as flows:
        root = await flows.add({"name": "p", "queue": q, "children": [{"name": "c", "queue": q}]})
    (span,) = spans.named(f"addFlow {q}")
    assert {carried(bench, node.job.id) for node in (root, root.children[0])} == {trace_id(span)}


def test_the_synchronous_producer_does_the_same(server: Server, queue_name: str, spans: Spans) -> None:
    with SyncQueue(queue_name, url=server.url, telemetry=Tracing(spans.tracer)) as queue:
        job = queue.add("n")
        assert "traceparent" in job.opts["telemetry"]["metadata"]
        queue.add_bulk([("n", None)])
    assert len(spans.named(f"add {queue_name}.n")) == 1


@pytest.mark.parametrize("metadata", ["no json", "[1]", '{"traceparent": 5}'])
async def test_a_context_that_cannot_be_read_harms_nobody(
    server: Server, queue: Queue, spans: Spans, metadata: str
) -> None:
    async def handle(job: Job) -> str:
        return "done"

    async with Worker(queue.name, handle, url=server.url, middleware=[JobTracing(spans.tracer)]):
        job = await queue.add("n", telemetry={"metadata": metadata})
        assert await job.wait_until_finished(10) == "done"


@pytest.mark.parametrize("bad", ["x", {"metadata": 5}, {"omit": True}, {"omit_context": "yes"}])
async def test_telemetry_options_are_checked(queue: Queue, bad: Any) -> None:
    with pytest.raises(InputError, match="telemetry"):
        await queue.add("n", telemetry=bad)
