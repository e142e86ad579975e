-- SPDX-License-Identifier: MIT
--[[ Renew a lock that is ours.   KEYS[1] lock   ARGV[1] token   ARGV[2] ms
     Returns 1, or 0 when it is gone or another's: it is not made again. ]]
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
