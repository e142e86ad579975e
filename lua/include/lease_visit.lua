-- SPDX-License-Identifier: MIT
-- One visit to the ring: the lane at its head goes to the tail and gives up to `share(group, depth)` of its jobs.
-- Answers the group (nil: the ring is empty) and what ZPOPMIN gave. A lane with nothing to give leaves the ring.
--- @include "lease_lanes"
local function visit_lane(share)
  local ring = base .. 'ring'
  local group = call('LMOVE', ring, ring, 'LEFT', 'RIGHT')
  if not group then
    return nil
  end
  local lane = lane_of(group)
  local depth = call('ZCARD', lane)
  local ceiling = tonumber(call('HGET', base .. 'glimit', group))
  local room = depth
  if ceiling then
    room = ceiling - (tonumber(call('HGET', base .. 'gactive', group)) or 0)
  end
  local count = math.min(share(group, depth), depth, room)
  local popped = count > 0 and call('ZPOPMIN', lane, count) or {}
  if count >= depth or (ceiling and count >= room) then
    unring_lane(group)
  end
  return group, popped
end

local function weight_of(group)
  return math.max(1, tonumber(call('HGET', base .. 'gweight', group)) or 1)
end

local function charge(group, count)
  if count > 0 then
    call('HINCRBY', base .. 'gactive', group, count)
  end
end
