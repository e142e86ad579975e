# SPDX-License-Identifier: MIT
"""The conformance scenarios of the lease plane, by name: each has its test, those about streams apart."""

from __future__ import annotations

import ast
import re
from pathlib import Path

LISTED = """
    fence mint duplicate kind order claim stale complete retry dead reap rotate pause limit schedule repeat
    backoff resubscribe counts state metrics dedup rate lane_depth queue_pause drain obliterate update_data
    update_progress job_logs remove_job reprocess_job lock_extend stalled events telemetry cancel
    unknown_state rate_consult dedup_release extend_locks_batch stalled_group obliterate_grouped reassign
    lane_drain reap_group flow_add flow_fanin flow_children_values flow_cross_queue flow_fail_parent
    flow_ignore_dep flow_add_bulk flow_grandchild flow_grandchild_fail pool_enqueue pool_order
    native_lock_field native_lock_refuses weighted_proportion starvation_drill batch_claim
    batch_claim_short batch_partial_failure batch_shaping_floor batch_shaping_timeout
    batch_shaping_partial_failure grouped_batch_affinity grouped_batch_ceiling grouped_batch_fairness
    batch_partition batch_delay batch_delay_stale
"""
NAMES = (
    LISTED.split()
)  # in the order of their numbers, from 1; 74 to 79 are about streams, which are left out


def test_every_scenario_has_a_test_that_names_it() -> None:
    found: dict[int, str] = {}
    for path in Path(__file__).parent.glob("test_conformance_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for number, name in re.findall(r"scenario (\d+) (\w+)", ast.get_docstring(node) or ""):
                    assert int(number) not in found, f"scenario {number} is named twice"
                    found[int(number)] = name
    assert [found.get(number) for number in range(1, len(NAMES) + 1)] == NAMES
    assert len(found) == len(NAMES) == 73
