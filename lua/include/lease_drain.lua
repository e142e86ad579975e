-- SPDX-License-Identifier: MIT
-- Deletes the jobs of one sorted set with everything of theirs, and the set. Their parents do not wait for them.
--- @include "lease_end"
local function drain_set(key, most)
  local count = 0
  for _, id in ipairs(call('ZRANGE', key, 0, most and most - 1 or -1)) do
    call('ZREM', key, id)
    local job = load_job(id)
    if job then
      remove_row(job)
      count = count + 1
    end
  end
  return count
end
