-- SPDX-License-Identifier: MIT
-- Takes one job out of active because its holder is dead, and counts that: pending again, or dead past the limit.
--- @include "lease_ready"
--- @include "lease_end"
local function stall(id, allowed, ...)
  local job = load_job(id)
  if not job then
    call('ZREM', base .. 'active', id)
    return 'missing', 0
  end
  leave(job)
  local count = call('HINCRBY', job.row, 'stalled', '1')
  tell('stalled', id)
  if count > allowed then
    bury(job, 'stalled', ...)
    return 'dead', count
  end
  call('HSET', job.row, 'state', 'pending', ...)
  put_ready(id, job.group)
  return 'pending', count
end
