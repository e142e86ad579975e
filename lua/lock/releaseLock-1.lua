-- SPDX-License-Identifier: MIT
--[[ Let go of one lock.   KEYS[1] lock
     ARGV[1] token   ARGV[2] duration (unused)
     Returns 1, or 0 when the lock is missing or another's. ]]
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
