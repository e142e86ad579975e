-- SPDX-License-Identifier: MIT
--[[ Let a queue belong to one plane: note it, or say whose it is already.   KEYS[1] meta   KEYS[2] queue base
     ARGV[1] `lease` or `lock`
     Returns an empty text when the plane may have it, else the key that shows it to be the other's. ]]
local call, base, plane = redis.call, KEYS[2], ARGV[1]
local function is(kind, ...)
  for _, name in ipairs({ ... }) do
    if call('TYPE', base .. name).ok == kind then
      return name
    end
  end
end
local noted = call('HGET', KEYS[1], 'plane')
if noted then
  return noted == plane and '' or 'meta'
end
if plane == 'lock' then
  return is('zset', 'active', 'pending', 'schedule', 'dead') or is('list', 'ring') or is('set', 'paused') or ''
end
local other = is('list', 'active', 'wait', 'paused')
  or is('zset', 'prioritized', 'delayed', 'completed', 'failed', 'waiting-children', 'marker')
  or is('stream', 'events')
if other then
  return other
end
call('HSET', KEYS[1], 'plane', plane)
return ''
