-- SPDX-License-Identifier: MIT
--[[ Set how a lane is served.   KEYS[1] ring
     ARGV[1] queue base   ARGV[2] `pause`, `resume`, `limit` or `weight`   ARGV[3] group   ARGV[4] ceiling or weight, 0 = none
     Returns 1. ]]
local call, base, verb, group = redis.call, ARGV[1], ARGV[2], ARGV[3]
--- @include "lease_lanes"
local function set(hash, value)
  if value == '0' then
    call('HDEL', base .. hash, group)
  else
    call('HSET', base .. hash, group, value)
  end
end
if verb == 'pause' then
  call('SADD', base .. 'paused', group)
  unring_lane(group)
elseif verb == 'resume' then
  call('SREM', base .. 'paused', group)
  ring_lane(group)
elseif verb == 'limit' then
  set('glimit', ARGV[4])
  local in_flight = tonumber(call('HGET', base .. 'gactive', group)) or 0
  if ARGV[4] ~= '0' and in_flight >= tonumber(ARGV[4]) then
    unring_lane(group)
  else
    ring_lane(group)
  end
else
  set('gweight', ARGV[4])
end
return 1
