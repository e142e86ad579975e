-- SPDX-License-Identifier: MIT
--[[ Give a lock back that is ours.   KEYS[1] lock   ARGV[1] token
     Returns 1, or 0 when it is gone or another's. ]]
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
