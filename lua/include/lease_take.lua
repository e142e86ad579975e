-- SPDX-License-Identifier: MIT
-- Claims up to `want` jobs for one owner: first a turn of the ring, lane by lane by weight, then the flat jobs.
-- Respects the pause, the concurrency and the rate of the queue. A claimer that leaves work behind passes the wake
-- token on. Answers { rows of [id, flat row], ms until the rate window ends, due ms of the next scheduled job }.
--- @include "lease_pop"
--- @include "lease_tell"
--- @include "lease_wake"
local function mark_whole(id, owner)
  local row = base .. 'job:' .. id
  local flat = call('HGETALL', row)
  local token, had_owner
  for i = 1, #flat, 2 do
    local field = flat[i]
    if field == 'attempts' then
      token = digits(flat[i + 1] + 1)
      flat[i + 1] = token
    elseif field == 'state' then
      flat[i + 1] = 'active'
    elseif field == 'owner' then
      had_owner, flat[i + 1] = true, owner
    end
  end
  if not token then
    return nil
  end
  if not had_owner then
    flat[#flat + 1] = 'owner'
    flat[#flat + 1] = owner
  end
  call('HSET', row, 'attempts', token, 'state', 'active', 'owner', owner)
  tell('active', id)
  return { id, flat }
end

local function take_from_lanes(want, lease, owner, rows)
  --- @include "lease_visit"
  --- @include "lease_turn"
  while #rows < want do
    local weight, due, given
    local group, popped = visit_lane(function(group)
      weight, due = turn_of(group)
      given = math.min(due, want - #rows)
      return given
    end)
    if not group then
      return
    end
    charge(group, claim_ids(popped, 2, lease, owner, rows, mark_whole))
    if weight > 1 then
      end_turn(group, due - given)
    end
  end
end

local function take_flat(want, lease, owner, rows)
  while #rows < want do
    local popped = call('ZPOPMIN', base .. 'pending', want - #rows)
    if not popped[1] then
      return
    end
    claim_ids(popped, 2, lease, owner, rows, mark_whole)
  end
end

-- How many may be taken, and for how long the rate window keeps us out when that is why it is none.
local function allowance(want, most, window)
  local meta = call('HMGET', base .. 'meta', 'paused', 'concurrency', 'max', 'duration')
  if meta[1] == '1' then
    return 0, 0, nil
  end
  local ceiling = tonumber(meta[2]) or 0
  if ceiling > 0 then
    want = math.min(want, ceiling - call('ZCARD', base .. 'active'))
  end
  most, window = tonumber(most) or tonumber(meta[3]) or 0, tonumber(window) or tonumber(meta[4]) or 0
  if most <= 0 then
    return want, 0, nil
  end
  local left = most - (tonumber(call('GET', base .. 'limiter')) or 0)
  if left <= 0 then
    return 0, math.max(call('PTTL', base .. 'limiter'), 0), nil
  end
  return math.min(want, left), 0, window > 0 and window or nil
end

local function take_many(want, lease, owner, most, window)
  local room, limited, counted = allowance(math.min(want, 1000), most, window)
  local rows = {}
  if room > 0 then
    if call('EXISTS', base .. 'ring') == 1 then
      take_from_lanes(room, lease, owner, rows)
    end
    take_flat(room, lease, owner, rows)
    local taken = #rows
    if taken > 0 and counted and call('INCRBY', base .. 'limiter', taken) == taken then
      call('PEXPIRE', base .. 'limiter', counted)
    end
    if taken == room and call('EXISTS', base .. 'pending', base .. 'ring') > 0 then
      push_wake(1)
    end
  end
  local due = 0
  if not rows[1] then
    due = tonumber(call('ZRANGE', base .. 'schedule', 0, 0, 'WITHSCORES')[2]) or 0
  end
  return { rows, limited, due }
end
