-- SPDX-License-Identifier: MIT
--[[ Let a delayed job go at once.
     KEYS[1] delayed   KEYS[2] wait   KEYS[3] paused (unused)   KEYS[4] meta   KEYS[5] prioritized   KEYS[6] active
     KEYS[7] pc   KEYS[8] events   KEYS[9] marker
     ARGV[1] key base   ARGV[2] id
     Returns 0, or -3 when the job is not delayed. ]]
local call = redis.call
--- @include "push_plain"
local wait, id = KEYS[2], ARGV[2]
local job = ARGV[1] .. id
if call('ZREM', KEYS[1], id) == 0 then
  return -3
end
-- An id that begins with `0:` is a marker of an ancient version.
local newest = call('LINDEX', wait, 0)
if newest and string.sub(newest, 1, 2) == '0:' then
  call('LPOP', wait)
end
local priority = tonumber(call('HGET', job, 'priority') or 0)
if priority == 0 then
  push_plain('LPUSH', wait, KEYS[4], KEYS[6], KEYS[9], id)
else
  --- @include "prio_push"
  push_prioritized(KEYS[5], KEYS[7], priority, id)
  wake(KEYS[4], KEYS[6], KEYS[9])
end
call('XADD', KEYS[8], '*', 'event', 'waiting', 'jobId', id, 'prev', 'delayed')
call('HSET', job, 'delay', 0)
return 0
