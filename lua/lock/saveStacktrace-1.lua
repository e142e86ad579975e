-- SPDX-License-Identifier: MIT
--[[ Write why a job failed, without moving it.   KEYS[1] job
     ARGV[1] stacktrace JSON   ARGV[2] reason
     Returns 0, or -1 when there is no such job. ]]
if redis.call('EXISTS', KEYS[1]) == 0 then
  return -1
end
redis.call('HSET', KEYS[1], 'stacktrace', ARGV[1], 'failedReason', ARGV[2])
return 0
