-- SPDX-License-Identifier: MIT
--[[ Free a deduplication id, if the job still owns it.   KEYS[1] de:<deduplication id>
     ARGV[1] id
     Returns 1, or 0 when another job owns it or none. ]]
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
