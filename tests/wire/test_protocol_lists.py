# SPDX-License-Identifier: MIT
"""The lists of the protocol page, item by item, and the tests that hold them: none may be missing.

Section 10 is what reimplementations get wrong, section 9 what releases and clients do differently.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PLANE = "plane/test_scripts_"

# By the item's number there.
GOT_WRONG: dict[int, str] = {
    1: "take::test_wait_runs_from_the_right_and_before_all_priorities add::test_a_lifo_job_is_next_in_line",
    2: "checklist::test_02_front_and_back_of_the_line",
    3: "add::test_a_delayed_job_sets_the_alarm_and_its_event_bears_the_moment",
    4: "add::test_jobs_due_in_the_same_millisecond_keep_their_order_up_to_4096 "
    "flows::test_a_released_parent_keeps_its_priority_or_delay",
    5: "take::test_due_jobs_are_promoted_up_to_and_including_now_in_order "
    "take::test_at_most_a_thousand_are_promoted_per_call",
    6: "take::test_a_blocked_queue_still_promotes_but_gives_nothing "
    "checklist::test_06_promotion_runs_before_a_job_is_looked_at",
    7: "take::test_the_rate_limit_counts_takes_and_comes_before_the_pause",
    8: "take::test_the_queues_own_max_beats_the_workers_and_its_duration_does_not",
    9: "take::test_the_window_starts_with_its_first_take_and_promotion_goes_on_meanwhile "
    "take::test_a_limit_without_duration_errs_after_the_move_and_leaves_no_lock",
    10: "take::test_every_take_wakes_the_next_sleeper",
    11: "children/test_worker.py::test_a_burst_uses_every_slot_and_delayed_jobs_start_in_time",
    12: "checklist::test_12_the_counter_of_turns_starts_anew_when_nothing_waits",
    13: "retry::test_attempts_started_count_takes_and_attempts_made_count_ends "
    "retry::test_a_delay_that_is_no_attempt_counts_none retry::test_a_release_goes_to_the_front_and_costs_no_attempt",
    14: "unit/test_backoff.py::test_what_follows_a_failed_run finish::test_the_last_attempt_says_so_after_failed",
    15: "checklist::test_15_an_unrecoverable_failure_with_attempts_left_exhausts_nothing",
    16: "finish::test_the_next_job_comes_with_the_answer_under_the_same_token",
    17: "checklist::test_17_metrics_need_the_empty_text_to_be_off "
    "finish::test_a_failure_without_a_number_of_attempts_is_a_mistake_of_the_caller",
    18: "finish::test_a_job_that_left_active_is_refused_with_its_lock_gone_and_its_fields_written",
    19: "finish::test_pending_and_failed_children_refuse_a_completion_and_the_lock_stays",
    20: "finish::test_drained_waits_for_the_last_active_job "
    "finish::test_a_delayed_job_keeps_a_fetch_from_saying_drained_but_not_a_plain_finish",
    21: "take::test_the_token_zero_means_no_lock checklist::test_21_the_token_zero_leaves_every_lock_alone",
    22: "finish::test_a_finish_clears_the_stalled_mark retry::test_every_way_back_clears_the_stalled_mark "
    "locks::test_a_renewal_moves_the_end_forward_and_clears_the_mark",
    23: "stalled::test_a_job_without_lock_is_marked_by_one_sweep_and_recovered_by_the_next "
    "stalled::test_the_guard_key_lasts_for_the_interval",
    24: "stalled::test_the_first_stall_is_forgiven_and_the_second_fails "
    "wire/test_differences.py::test_a_job_whose_failure_is_due_is_failed_by_either_side_without_being_run",
    25: "checklist::test_25_a_deferred_failure_ends_with_the_failure",
    26: "flows::test_a_child_without_options_leaves_the_parent_waiting_until_it_is_removed "
    "flows::test_a_failed_child_that_is_not_kept_detaches_itself",
    27: "flows::test_fpof_on_a_running_parent_only_leaves_the_reason",
    28: "flows::test_cpof_releases_the_parent_at_once",
    29: "checklist::test_29_where_failed_children_are_remembered",
    30: "checklist::test_30_children_by_full_key_and_parents_twice",
    31: "dedup::test_replace_takes_the_place_of_a_delayed_owner "
    "dedup::test_replace_is_silent_when_the_owner_is_not_delayed",
    32: "dedup::test_replace_takes_the_place_of_a_delayed_owner",
    33: "dedup::test_every_end_of_the_owner_frees_the_id "
    "dedup::test_throttling_lasts_as_long_as_its_ttl_and_outlives_the_job",
    34: "dedup::test_the_latest_add_during_a_run_becomes_a_job_at_its_end "
    "dedup::test_parking_ignores_the_ttl_and_makes_the_key_last dedup::test_a_retry_does_not_release_the_parked_one",
    35: "add::test_a_taken_id_is_answered_and_only_the_counter_moves "
    "add::test_a_missing_parent_is_refused_before_anything_is_written "
    "schedulers::test_the_taker_of_the_current_run_makes_the_next",
    36: "checklist::test_36_a_duplicate_is_answered_with_its_id",
    37: "checklist::test_37_who_heeds_a_priority_on_the_way_back_and_who_does_not",
    38: "finish::test_only_the_newest_are_kept "
    "finish::test_age_evicts_at_most_its_limit_and_the_newest_of_the_old_first",
    39: "checklist::test_39_what_removals_answer_and_that_locks_stay",
    40: "checklist::test_40_a_slot_is_written_the_same_everywhere",
    41: "schedulers::test_the_taker_of_the_current_run_makes_the_next",
    42: "checklist::test_42_options_are_an_object_and_an_empty_list_is_one_too",
    43: "checklist::test_43_lists_in_ascending_order",
    44: "checklist::test_44_three_things_named_paused",
}

RELEASES = "wire/test_releases.py::"
DIFFERENT = "wire/test_differences.py::"
DIFFERENCES: dict[str, str] = {
    "9.1 the waiting list of a paused queue": RELEASES
    + "test_jobs_that_release_5_parked_in_its_paused_list_are_counted_and_run_after_our_resume",
    "9.1 what a resume answers": "small::test_what_an_older_version_parked_is_merged_in_slices",
    "9.1 counts per priority": "wire/test_answers.py::test_both_give_the_same_answers",
    "9.1 obliterate": "wire/test_verbs.py::test_a_verb_leaves_the_same_keys_behind_on_either_side",
    "9.1 debounced": RELEASES + "test_debounced_events_and_deduplicated_jobs_of_release_5_are_tolerated",
    "9.1 nrjid": RELEASES + "test_a_series_advanced_by_release_5_goes_on_in_our_pool",
    "9.1 the data of a series": DIFFERENT + "test_a_series_goes_on_with_its_data_whoever_made_the_last_run",
    "9.1 legacy repeatables": DIFFERENT
    + "test_a_repeat_as_an_option_of_a_job_is_refused_since_release_6_would_add_it_once",
    "9.2.1 pauses of both": "wire/test_from_either_side.py::"
    "test_nothing_starts_after_a_pause_from_either_side_and_resume_from_the_other_works",
    "9.2.2 paused is read by state, count, clean, drain, remove": DIFFERENT
    + "test_jobs_that_release_5_parked_can_be_taken_away_by_us",
    "9.2.3 what is unknown": RELEASES + "test_unknown_fields_and_ancient_markers_are_left_alone",
    "9.2.4 debounced without deduplicated": RELEASES
    + "test_debounced_events_and_deduplicated_jobs_of_release_5_are_tolerated",
    "9.2.5 ancient markers": "take::test_markers_of_ancient_versions_are_skipped",
    "9.2.6 failed without active": DIFFERENT + "test_a_failure_told_in_the_order_of_old_workers_ends_a_wait",
    "9.2.7 the Python port": DIFFERENT + "test_a_job_of_the_python_port_is_read_done_and_retried",
    "9.4 moves of its workers": "wire/test_job_rows.py::test_moves_told_by_an_exception_end_alike",
    "9.4 reprocessJob heeds priorities": RELEASES
    + "test_a_prioritized_job_retried_by_the_newest_release_runs_again",
    "9.4 a due failure and the rate limit": DIFFERENT
    + "test_a_job_whose_failure_is_due_is_failed_by_either_side_without_being_run",
    "9.4 flows step by step": RELEASES
    + "test_a_flow_that_the_newest_release_adds_step_by_step_is_released_once",
    "9.4 reschedule": DIFFERENT + "test_a_rescheduled_owner_of_a_deduplication_id_is_ours_to_read_and_do",
    "9.4 moveJobsToWait": DIFFERENT
    + "test_a_finished_child_that_the_newest_release_retries_is_waited_for_again",
    "9.4 counts up to a moment": "wire/test_answers.py::test_both_give_the_same_answers",
    "9.4 numkeys of the sweep": "stalled::test_the_first_stall_is_forgiven_and_the_second_fails",
}


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(("item", "tests"), [*GOT_WRONG.items(), *DIFFERENCES.items()])
def test_every_item_of_the_lists_has_a_test(item: int | str, tests: str) -> None:
    for test in tests.split():
        place, _, name = test.partition("::")
        path = place if place.endswith(".py") else f"{PLANE}{place}.py"
        assert name in functions(path), f"{item}: {path} has no {name}"


def test_no_item_is_left_out() -> None:
    assert list(GOT_WRONG) == list(range(1, 45))
