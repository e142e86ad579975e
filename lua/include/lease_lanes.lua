-- SPDX-License-Identifier: MIT
-- Lanes: one sorted set per group. The ring lists exactly the lanes that can be served now, each once: not empty,
-- not paused, below their ceiling. `base` is the queue base.
--- @include "lease_places"
--- @include "lease_wake"
-- For every verb that may make a lane servable.
local function ring_lane(group)
  if call('EXISTS', lane_of(group)) == 0 or call('SISMEMBER', base .. 'paused', group) == 1 then
    return
  end
  local ceiling = tonumber(call('HGET', base .. 'glimit', group))
  if ceiling and (tonumber(call('HGET', base .. 'gactive', group)) or 0) >= ceiling then
    return
  end
  if not call('LPOS', base .. 'ring', group) then
    call('RPUSH', base .. 'ring', group)
    push_wake(64)
  end
end

-- For every verb that may have emptied or closed a lane.
local function unring_lane(group)
  call('LREM', base .. 'ring', 0, group)
end

local function discharge(group)
  if call('HINCRBY', base .. 'gactive', group, '-1') <= 0 then
    call('HDEL', base .. 'gactive', group)
  end
end
