-- SPDX-License-Identifier: MIT
--- @include "delayed_score"
--- @include "mark_delayed"
-- P.delay-add: into `delayed`, with its event, which bears the moment and not the duration.
local function add_delayed(delayed, events, marker, cap, id, from, delay)
  local score, due = delayed_score(delayed, from, delay)
  call('ZADD', delayed, score, id)
  call('XADD', events, 'MAXLEN', '~', cap, '*', 'event', 'delayed', 'jobId', id, 'delay', due)
  mark_delayed(marker, delayed)
end
