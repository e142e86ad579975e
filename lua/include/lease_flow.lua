-- SPDX-License-Identifier: MIT
-- What a child's end does to its parent. In the same queue it is done here; for another queue a signal goes to the
-- outbox, and the pump of this queue carries it over. A child counts once: by the first entry that names it.
--- @include "lease_due"
--- @include "lease_ready"
local function signal(...)
  -- Whoever delivers looks again afterwards, so the first one is enough.
  if call('RPUSH', base .. 'flow:outbox', table.concat({ ... }, '\0')) == 1 then
    announce('due', '0')
  end
end

local function count_down(parent, row, state, group)
  if call('DECR', row .. ':dependencies') <= 0 and state == 'awaiting_children' then
    call('HSET', row, 'state', 'pending')
    put_ready(parent, group)
  end
end

local function child_completed(parent, child, result)
  local row = base .. 'job:' .. parent
  local f = call('HMGET', row, 'state', 'group')
  if not f[1] or call('HSETNX', row .. ':processed', child, result) == 0 then
    return
  end
  -- One that died under the policy `id` and was tried again has been counted.
  if call('HDEL', row .. ':unsuccessful', child) == 0 then
    count_down(parent, row, f[1], f[2])
  end
end

local function bury_parent(parent, row, state, group, reason)
  if state == 'pending' then
    call('ZREM', group and lane_of(group) or base .. 'pending', parent)
    if group and call('EXISTS', lane_of(group)) == 0 then
      unring_lane(group)
    end
  end
  call('HSET', row, 'state', 'dead', 'last_error', reason)
  call('ZADD', base .. 'dead', '0', parent)
  call('HINCRBY', base .. 'metrics:failed', 'count', '1')
  tell('failed', parent, 'reason', reason)
end

-- Climbs as long as each parent dies of its child and lives in this queue.
local function child_failed(parent, child, policy, reason)
  while parent do
    local row = base .. 'job:' .. parent
    local f = call('HMGET', row, 'state', 'group', 'parent', 'parent_queue', 'parent_policy')
    local state = f[1]
    if not state then
      return
    end
    if policy == 'id' then
      if call('HSETNX', row .. ':unsuccessful', child, reason) == 1
        and call('HEXISTS', row .. ':processed', child) == 0 then
        count_down(parent, row, state, f[2])
      end
      return
    end
    if call('HSETNX', row .. ':failed', child, reason) == 0
      or (state ~= 'awaiting_children' and state ~= 'pending') then
      return
    end
    bury_parent(parent, row, state, f[2], reason)
    if f[3] and f[4] then
      return signal('', 'fail', f[4], f[3], parent, f[5] or 'fp', reason)
    end
    parent, child, policy = f[3], parent, f[5] or 'fp'
  end
end

local function tell_parent_done(job, result)
  if job.parent_queue then
    signal(job.parent_queue, job.parent, job.id, result)
  else
    child_completed(job.parent, job.id, result)
  end
end

local function tell_parent_dead(job, policy, reason)
  if job.parent_queue then
    signal('', 'fail', job.parent_queue, job.parent, job.id, policy, reason)
  else
    child_failed(job.parent, job.id, policy, reason)
  end
end
