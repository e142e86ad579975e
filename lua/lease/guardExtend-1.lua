-- SPDX-License-Identifier: MIT
--[[ Renew a lock that is ours.   KEYS[1] lock   ARGV[1] token   ARGV[2] ms
     Returns 1, or 0 when it is gone or another's: it is not made again. ]]
local call, mine = redis.call, ARGV[1] .. ':'
local held = call('GET', KEYS[1])
if not held or string.sub(held, 1, #mine) ~= mine then
  return 0
end
return call('PEXPIRE', KEYS[1], ARGV[2])
