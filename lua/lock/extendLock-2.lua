-- SPDX-License-Identifier: MIT
--[[ Renew one lock.   KEYS[1] lock   KEYS[2] stalled
     ARGV[1] token   ARGV[2] duration ms   ARGV[3] id
     Returns 1, or 0 when the lock is missing or another's. ]]
local call = redis.call
if call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
call('SREM', KEYS[2], ARGV[3])
return 1
