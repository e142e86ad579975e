-- SPDX-License-Identifier: MIT
--[[ Read a scheduler.   KEYS[1] repeat
     ARGV[1] scheduler id
     Returns {flat hash, score of the next run}; unknown: an empty array. ]]
local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not score then
  return {}
end
return { redis.call('HGETALL', KEYS[1] .. ':' .. ARGV[1]), score }
