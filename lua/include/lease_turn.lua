-- SPDX-License-Identifier: MIT
-- A lane's turn outlives a take that has fewer slots than the lane weighs: else weights would count only for takes that
-- are larger than they are. What is left of a turn is in `gturn`, and its lane at the head of the ring.
--- @include "lease_visit"
local function turn_of(group)
  local weight = weight_of(group)
  local left = weight > 1 and tonumber(call('HGET', base .. 'gturn', group))
  return weight, left and math.min(left, weight) or weight
end

-- After a visit, which has moved the lane to the tail, if it can still be served.
local function end_turn(group, left)
  local ring = base .. 'ring'
  if left > 0 and call('LINDEX', ring, -1) == group then
    call('LMOVE', ring, ring, 'RIGHT', 'LEFT')
    call('HSET', base .. 'gturn', group, digits(left))
  else
    call('HDEL', base .. 'gturn', group)
  end
end
