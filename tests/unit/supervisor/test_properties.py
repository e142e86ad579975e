# SPDX-License-Identifier: MIT
"""Random lives of random trees: whatever happens in whatever order, the rules hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from echomq_pool.supervisor.group import Group
from echomq_pool.supervisor.node import State
from echomq_pool.supervisor.reason import SHUTDOWN, ExitReason, Why
from echomq_pool.supervisor.spec import Backoff, ChildSpec, GroupSpec
from echomq_pool.supervisor.tree import walk
from tests.support.fake_world import CRASH, KILL, NORMAL, Fake, Script, child, group, pool

SHORT = Backoff(10, 100, 0.2)
REASONS = [
    CRASH,
    KILL,
    NORMAL,
    SHUTDOWN,
    *(ExitReason(w) for w in (Why.OOM, Why.RECYCLE, Why.HANG, Why.TIMEOUT)),
]
WORDS = ["ok", "ok", "ok", "error", "ignore", "die", "silent", "nofork", "wait"]
STRATEGIES = ["one_for_one", "one_for_all", "rest_for_one"]
WHERE = [("inner", "i0"), ("inner", "i1"), ("root", "r0"), ("root", "inner"), ("root", "w")]
RESTARTS = ["permanent", "permanent", "transient", "temporary"]


@st.composite
def trees(draw: st.DrawFn) -> GroupSpec:
    """A root, one static group inside with a few children, and two pools; budgets from tight to loose."""
    budgets = st.sampled_from([0, 1, 3, 50])

    def some(prefix: str) -> list[ChildSpec]:
        kinds = draw(st.lists(st.sampled_from(RESTARTS), max_size=3))
        first = draw(st.booleans())
        return [child(f"{prefix}{i}", k, shutdown=300, start_timeout_ms=400, backoff=SHORT, stop_first=first)
                for i, k in enumerate(kinds)]  # fmt: skip

    inner = group(
        "inner", *some("i"), strategy=draw(st.sampled_from(STRATEGIES)), budget=draw(budgets), backoff=SHORT
    )
    template = child("w", shutdown=300, start_timeout_ms=400, backoff=SHORT)
    workers = pool(
        "w",
        draw(st.integers(0, 3)),
        template,
        budget=draw(budgets),
        drain=500,
        stop_first=draw(st.booleans()),
    )
    twins = pool("t", draw(st.integers(0, 3)), child("t", shutdown=300, start_timeout_ms=400, backoff=SHORT),
                 strategy=draw(st.sampled_from(STRATEGIES)), budget=draw(budgets), drain=500)  # fmt: skip
    members = [*some("r"), inner, workers, twins]
    return group(
        "root", *members, strategy=draw(st.sampled_from(STRATEGIES)), budget=draw(budgets), backoff=SHORT
    )


class Life(RuleBasedStateMachine):
    @initialize(spec=trees())
    def begin(self, spec: GroupSpec) -> None:
        self.fake = Fake(spec, drain_ms=2_000)
        self.spec = spec
        self.generation = 0
        self.tickets: list[int] = []
        self.asked: set[int] = set()
        self.fake.boot()

    @rule(pick=st.integers(0, 20), reason=st.sampled_from(REASONS))
    def a_child_ends(self, pick: int, reason: ExitReason) -> None:
        if self.fake.alive:
            self.fake.end(sorted(self.fake.alive)[pick % len(self.fake.alive)], reason)
            self.fake.advance()

    @rule(pick=st.integers(0, 20))
    def a_child_acks(self, pick: int) -> None:
        if self.fake.alive:
            self.fake.ack(sorted(self.fake.alive)[pick % len(self.fake.alive)])
            self.fake.advance()

    @rule(name=st.sampled_from(["i0", "i1", "r0", "w", "t"]), word=st.sampled_from(WORDS),
          stop=st.sampled_from([0, 0, 50, 5_000, None]), start_ms=st.sampled_from([0, 0, 30]))  # fmt: skip
    def the_script_changes(self, name: str, word: str, stop: int | None, start_ms: int) -> None:
        self.fake.scripts[name] = Script([word], stop=stop, start_ms=start_ms)

    @rule(ms=st.integers(0, 700))
    def time_passes(self, ms: int) -> None:
        self.fake.advance(ms)

    @rule(pick=st.integers(0, 20))
    def one_is_replaced(self, pick: int) -> None:
        if self.fake.alive:
            handle = sorted(self.fake.alive)[pick % len(self.fake.alive)]
            self.tickets.append(self.fake.ask("replace_child", handle, "recycle"))

    @rule(name=st.sampled_from(["w", "t"]), count=st.integers(0, 5))
    def a_pool_is_scaled(self, name: str, count: int) -> None:
        self.tickets.append(self.fake.ask("scale", name, count, {}))

    @rule(
        verb=st.sampled_from(["terminate_child", "restart_child", "delete_child"]),
        where=st.sampled_from(WHERE),
    )
    def an_operator_acts(self, verb: str, where: tuple[str, str]) -> None:
        self.tickets.append(self.fake.ask(verb, *where))

    @rule()
    def an_operator_ends_a_worker(self) -> None:
        for handle, spec in list(self.fake.alive.items())[-1:]:
            name = spec.id.rpartition("-")[0]
            if name in ("w", "t"):
                self.tickets.append(self.fake.ask("terminate_child", name, handle))

    @rule(roll=st.booleans())
    def the_pool_is_reloaded(self, roll: bool) -> None:
        self.generation += 1
        self.tickets.append(self.fake.ask("reconfigure", renewed(self.spec, self.generation), roll=roll))

    @precondition(lambda self: self.fake.finished is None)
    @rule(within=st.integers(0, 3_000), fast=st.booleans())
    def the_pool_is_told_to_stop(self, within: int, fast: bool) -> None:
        self.fake.stop(within, fast=fast)

    @invariant()
    def no_static_child_lives_twice(self) -> None:
        names = Counter(s.id for s in self.fake.alive.values() if "-" not in s.id)
        assert not [name for name, count in names.items() if count > 1]

    @invariant()
    def no_pool_holds_more_than_one_too_many(self) -> None:
        for node in walk(self.fake.tree.root):
            if isinstance(node, Group) and node.spec.pool:
                staying = [
                    c for c in node.children if c.state in (State.STARTING, State.RUNNING) and not c.retired
                ]
                assert len(staying) <= node.target + 1, (node.id, node.target)

    @invariant()
    def budgets_are_kept(self) -> None:
        for node in walk(self.fake.tree.root):
            if isinstance(node, Group) and node.state is State.RUNNING:
                recent = [t for t in node.times if t >= self.fake.now - node.spec.period_ms]
                assert len(recent) <= node.spec.max_restarts or node.spec != self.spec

    @invariant()
    def the_finished_leave_nobody_behind(self) -> None:
        if self.fake.finished is not None:
            assert self.fake.alive == {}

    @invariant()
    def the_tree_knows_exactly_the_living(self) -> None:
        known = {leaf.handle for leaf in self.fake.tree.leaves()}
        assert set(self.fake.alive) <= known

    def teardown(self) -> None:
        if not hasattr(self, "fake"):
            return
        self._heals()
        self._ends()

    def _heals(self) -> None:
        """Once children behave again, everything that should live does."""
        self.fake.scripts.clear()
        self.fake.advance(60_000)
        if self.fake.finished is not None or self.fake.tree.root.state is not State.RUNNING:
            return
        for node in walk(self.fake.tree.root):
            assert node.state in (State.RUNNING, State.DOWN), self.picture()
            if isinstance(node, Group):
                assert not node.steps, self.picture()
                assert node.surge.active is None, self.picture()
        rollout = self.fake.tree.rollout
        assert rollout is None or rollout.over, (rollout._waiting, rollout._todo, self.fake.log[-40:])
        assert self.unanswered() == []

    def _ends(self) -> None:
        if self.fake.finished is None:
            self.fake.scripts["*"] = Script(stop=None)
            self.fake.stop(1_000)
            self.fake.advance(1_000 + 2_500 + 2_000)
        assert self.fake.finished is not None
        assert self.fake.alive == {}, (self.fake.ids(), self.fake.finished, self.fake.log[-30:])
        assert self.unanswered() == []

    def picture(self) -> list[object]:
        """Everything that is needed to understand a failure."""
        nodes = walk(self.fake.tree.root)
        states = [(n.id, n.state.value, n.retired, n.restart_at) for n in nodes]
        steps = [(n.id, [(s.do, s.begun, s.at, [x.id for x in s.nodes]) for s in n.steps])
                 for n in nodes if isinstance(n, Group)]  # fmt: skip
        return [self.fake.now, states, steps, self.fake.log[-30:]]

    def unanswered(self) -> list[tuple[object, ...]]:
        """Requests without an answer, and what happened last."""
        missing = [self.fake.asked[t] for t in self.tickets if t not in self.fake.replies]
        return [*missing, *self.fake.log[-20:]] if missing else []


def renewed(spec: GroupSpec, generation: int) -> GroupSpec:
    """The same tree with every process of a new generation."""
    members = tuple(
        renewed(c, generation) if isinstance(c, GroupSpec) else replace(c, generation=generation)
        for c in spec.children
    )
    template = replace(spec.template, generation=generation) if spec.template else None
    return replace(spec, children=members, template=template)


Life.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate,),
)
TestRandomLives = Life.TestCase
