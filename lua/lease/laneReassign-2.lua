-- SPDX-License-Identifier: MIT
--[[ Move a waiting job to another lane.   KEYS[1] row   KEYS[2] destination lane
     ARGV[1] id   ARGV[2] destination group   ARGV[3] queue base
     Returns 1 moved, 0 it is there already, -1 no such job, -2 it does not wait in its lane. ]]
local call, base = redis.call, ARGV[3]
--- @include "lease_ready"
local f = call('HMGET', KEYS[1], 'attempts', 'group')
local source = f[2]
if not f[1] then
  return -1
elseif source == ARGV[2] then
  return 0
elseif call('ZREM', source and lane_of(source) or base .. 'pending', ARGV[1]) == 0 then
  return -2
end
if source and call('EXISTS', lane_of(source)) == 0 then
  unring_lane(source)
end
call('HSET', KEYS[1], 'group', ARGV[2])
put_ready(ARGV[1], ARGV[2])
return 1
