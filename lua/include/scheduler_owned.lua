-- SPDX-License-Identifier: MIT
-- P.scheduler-owned: the job is the current run of a scheduler that still exists. `scheduler` is its field rjk.
local function scheduler_owned(repeat_key, id, scheduler)
  local slot = scheduler and call('ZSCORE', repeat_key, scheduler)
  return slot and id == 'repeat:' .. scheduler .. ':' .. slot
end
