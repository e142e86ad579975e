-- SPDX-License-Identifier: MIT
--[[ Counts per minute.   KEYS[1] metrics:completed or metrics:failed   KEYS[2] the same and :data
     ARGV[1] first   ARGV[2] last
     Returns {{count, ms of the last point, count at it}, points newest first, number of points}. ]]
local call = redis.call
return {
  call('HMGET', KEYS[1], 'count', 'prevTS', 'prevCount'),
  call('LRANGE', KEYS[2], ARGV[1], ARGV[2]),
  call('LLEN', KEYS[2]),
}
