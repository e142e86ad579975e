-- SPDX-License-Identifier: MIT
--- @include "prio_push"
-- P.promote: delayed jobs whose time has come go to `wait` (or by their priority), at most 1000 per call.
-- The plain ones are pushed together at the end: nothing in between looks at `wait`.
local function promote_due(base, wait, prioritized, events, delayed, counter, marker, blocked, now)
  local due = call('ZRANGEBYSCORE', delayed, '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1000')
  if not due[1] then
    return
  end
  call('ZREM', delayed, unpack(due))
  local plain = {}
  for i = 1, #due do
    local id = due[i]
    local job = base .. id
    local stored = redis.pcall('HGET', job, 'priority')
    -- A key that is no hash is no job: its id goes, and the others are not lost with it.
    if type(stored) ~= 'table' then
      local priority = tonumber(stored or 0) or 0
      if priority == 0 then
        plain[#plain + 1] = id
      else
        push_prioritized(prioritized, counter, priority, id)
      end
      call('XADD', events, '*', 'event', 'waiting', 'jobId', id, 'prev', 'delayed')
      call('HSET', job, 'delay', '0')
    end
  end
  if plain[1] then
    call('LPUSH', wait, unpack(plain))
  end
  if not blocked then
    call('ZADD', marker, '0', '0')
  end
end
