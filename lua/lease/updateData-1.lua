-- SPDX-License-Identifier: MIT
--[[ Replace the payload of a job.   KEYS[1] row   ARGV[1] payload
     Returns 1, or -1 when there is no such job. ]]
if redis.call('EXISTS', KEYS[1]) == 0 then
  return -1
end
redis.call('HSET', KEYS[1], 'payload', ARGV[1])
return 1
