-- SPDX-License-Identifier: MIT
--[[ Take a lock that nobody has.   KEYS[1] lock   KEYS[2] its fencing number
     ARGV[1] token   ARGV[2] ms
     Returns the fencing number of this holding, which only grows, or 0 when somebody has the lock. ]]
local call = redis.call
if not call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  -- Our own first try, whose reply was lost.
  return call('GET', KEYS[1]) == ARGV[1] and tonumber(call('GET', KEYS[2])) or 0
end
return call('INCR', KEYS[2])
