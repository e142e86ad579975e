-- SPDX-License-Identifier: MIT
--[[ Give a lock back that is ours.   KEYS[1] lock   ARGV[1] token
     Returns 1, or 0 when it is gone or another's. ]]
local call, mine = redis.call, ARGV[1] .. ':'
local held = call('GET', KEYS[1])
if not held or string.sub(held, 1, #mine) ~= mine then
  return 0
end
return call('DEL', KEYS[1])
