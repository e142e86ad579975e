-- SPDX-License-Identifier: MIT
--[[ Replace the data of a job.   KEYS[1] job
     ARGV[1] data JSON
     Returns 0, or -1 when there is no such job. ]]
if redis.call('EXISTS', KEYS[1]) == 0 then
  return -1
end
redis.call('HSET', KEYS[1], 'data', ARGV[1])
return 0
