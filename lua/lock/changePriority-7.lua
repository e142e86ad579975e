-- SPDX-License-Identifier: MIT
--[[ Give a job another priority; one that waits changes its place, any other only remembers it.
     KEYS[1] wait   KEYS[2] paused (unused)   KEYS[3] meta   KEYS[4] prioritized   KEYS[5] active   KEYS[6] pc
     KEYS[7] marker
     ARGV[1] priority   ARGV[2] key base   ARGV[3] id   ARGV[4] 1 = in front of its equals
     Returns 0, or -1 when there is no such job. ]]
local call = redis.call
--- @include "prio_push"
--- @include "push_plain"
local wait, prioritized, id, front = KEYS[1], KEYS[4], ARGV[3], ARGV[4] == '1'
local job, priority = ARGV[2] .. id, tonumber(ARGV[1])
if call('EXISTS', job) == 0 then
  return -1
end
if call('ZREM', prioritized, id) == 1 or call('LREM', wait, -1, id) == 1 then
  if priority == 0 then
    push_plain(front and 'RPUSH' or 'LPUSH', wait, KEYS[3], KEYS[5], KEYS[7], id)
  elseif front then
    call('ZADD', prioritized, priority * 4294967296, id)
  else
    push_prioritized(prioritized, KEYS[6], priority, id)
    wake(KEYS[3], KEYS[5], KEYS[7])
  end
end
call('HSET', job, 'priority', ARGV[1])
return 0
