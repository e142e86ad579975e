-- SPDX-License-Identifier: MIT
--[[ Remove a scheduler, and its next job while that is still delayed.   KEYS[1] repeat   KEYS[2] delayed   KEYS[3] events
     ARGV[1] scheduler id   ARGV[2] key base
     Returns 0, or 1 when there is no such scheduler. ]]
local call = redis.call
--- @include "delete_keys"
local scheduler = ARGV[1]
local slot = call('ZSCORE', KEYS[1], scheduler)
if slot then
  local id = 'repeat:' .. scheduler .. ':' .. slot
  if call('ZREM', KEYS[2], id) == 1 then
    delete_job_keys(ARGV[2] .. id)
    call('XADD', KEYS[3], '*', 'event', 'removed', 'jobId', id, 'prev', 'delayed')
  end
end
if call('ZREM', KEYS[1], scheduler) == 0 then
  return 1
end
call('DEL', KEYS[1] .. ':' .. scheduler)
return 0
