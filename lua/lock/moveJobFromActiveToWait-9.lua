-- SPDX-License-Identifier: MIT
--[[ Hand an active job back to the front of the line, as if it had not been taken: no attempt is counted.
     KEYS[1] active   KEYS[2] wait   KEYS[3] stalled   KEYS[4] paused (unused)   KEYS[5] meta   KEYS[6] limiter
     KEYS[7] prioritized   KEYS[8] marker   KEYS[9] events
     ARGV[1] id   ARGV[2] token   ARGV[3] job key
     Returns ms until the rate limit ends (0: none), -1 no such job, -2 no lock, -6 another's lock. ]]
local call = redis.call
--- @include "blocked"
--- @include "default_cap"
--- @include "unlock"
local active, id, job = KEYS[1], ARGV[1], ARGV[3]
local stored = call('HMGET', job, 'name', 'priority')
if not stored[1] and call('EXISTS', job) == 0 then
  return -1
end
local refused = unlock(job .. ':lock', ARGV[2], KEYS[3], id)
if refused then
  return refused
end
if call('LREM', active, 1, id) > 0 then
  local meta = call('HMGET', KEYS[5], 'paused', 'concurrency', 'opts.maxLenEvents')
  local priority = tonumber(stored[2] or 0)
  if priority > 0 then
    call('ZADD', KEYS[7], priority * 4294967296, id)
  else
    call('RPUSH', KEYS[2], id)
    if not is_blocked(meta[1], meta[2], active) then
      call('ZADD', KEYS[8], '0', '0')
    end
  end
  local cap = meta[3] or default_cap(KEYS[5])
  call('XADD', KEYS[9], 'MAXLEN', '~', cap, '*', 'event', 'waiting', 'jobId', id, 'prev', 'active')
end
return math.max(call('PTTL', KEYS[6]), 0)
