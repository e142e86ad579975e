-- SPDX-License-Identifier: MIT
--- @include "queue_blocked"
--- @include "prio_push"
--- @include "delay_add"
--- @include "store"
-- P.enqueue: stores a job and puts it where its delay and priority say.
local function enqueue(base, cap, id, name, data, opts, timestamp, parent_key, parent, scheduler)
  local events, marker = base .. 'events', base .. 'marker'
  local delay, priority =
    store_job(base .. id, events, id, name, data, opts, timestamp, parent_key, parent, scheduler)
  if delay ~= 0 then
    add_delayed(base .. 'delayed', events, marker, cap, id, tonumber(timestamp), delay)
    return
  end
  if priority > 0 then
    push_prioritized(base .. 'prioritized', base .. 'pc', priority, id)
  else
    call(opts.lifo and 'RPUSH' or 'LPUSH', base .. 'wait', id)
  end
  if not queue_blocked(base .. 'meta', base .. 'active') then
    call('ZADD', marker, '0', '0')
  end
  call('XADD', events, 'MAXLEN', '~', cap, '*', 'event', 'waiting', 'jobId', id)
end
