-- SPDX-License-Identifier: MIT
--[[ Note how far a job is.   KEYS[1] job   KEYS[2] events   KEYS[3] meta
     ARGV[1] id   ARGV[2] progress JSON
     Returns 0, or -1 when there is no such job. ]]
local call = redis.call
--- @include "default_cap"
if call('EXISTS', KEYS[1]) == 0 then
  return -1
end
local cap = call('HGET', KEYS[3], 'opts.maxLenEvents') or default_cap(KEYS[3])
call('HSET', KEYS[1], 'progress', ARGV[2])
call('XADD', KEYS[2], 'MAXLEN', '~', cap, '*', 'event', 'progress', 'jobId', ARGV[1], 'data', ARGV[2])
return 0
