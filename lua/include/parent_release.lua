-- SPDX-License-Identifier: MIT
--- @include "queue_blocked"
--- @include "mark_delayed"
--- @include "prio_push"
-- P.parent-release: the children are done with, the parent goes on. `base` is that of the parent's queue. Here
-- alone a delayed score carries no sequence.
local function release_parent(base, id, now)
  local events, marker = base .. 'events', base .. 'marker'
  local stored = call('HMGET', base .. id, 'priority', 'delay')
  local priority, delay = tonumber(stored[1] or 0), tonumber(stored[2] or 0)
  if delay > 0 then
    local due = now + delay
    call('ZADD', base .. 'delayed', due * 4096, id)
    call('XADD', events, '*', 'event', 'delayed', 'jobId', id, 'delay', due)
    mark_delayed(marker, base .. 'delayed')
    return
  end
  if priority == 0 then
    call('RPUSH', base .. 'wait', id)
  else
    push_prioritized(base .. 'prioritized', base .. 'pc', priority, id)
  end
  if not queue_blocked(base .. 'meta', base .. 'active') then
    call('ZADD', marker, '0', '0')
  end
  call('XADD', events, '*', 'event', 'waiting', 'jobId', id, 'prev', 'waiting-children')
end

-- P.parent-release-if-waiting
local function release_waiting_parent(base, id, now)
  if call('EXISTS', base .. id) == 1 and call('ZREM', base .. 'waiting-children', id) == 1 then
    release_parent(base, id, now)
  end
end

-- P.parent-check
local function check_parent(base, id, now)
  if call('SCARD', base .. id .. ':dependencies') == 0 then
    release_waiting_parent(base, id, now)
  end
end
