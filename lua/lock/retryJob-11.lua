-- SPDX-License-Identifier: MIT
--[[ Put an active job back for its next attempt.
     KEYS[1] active   KEYS[2] wait   KEYS[3] paused (unused)   KEYS[4] job   KEYS[5] meta   KEYS[6] events
     KEYS[7] delayed   KEYS[8] prioritized   KEYS[9] pc   KEYS[10] marker   KEYS[11] stalled
     ARGV[1] key base   ARGV[2] now ms   ARGV[3] LPUSH (back of the line) | RPUSH (front)   ARGV[4] id
     ARGV[5] token   ARGV[6] msgpack flat array of further fields, or empty
     Returns 0, -1 no such job, -2 no lock, -3 not active, -6 another's lock.
     Due delayed jobs are promoted first, even if this job is then refused. ]]
local call = redis.call
--- @include "blocked"
--- @include "default_cap"
--- @include "promote"
--- @include "unlock"
local active, wait, job, meta_key, events = KEYS[1], KEYS[2], KEYS[4], KEYS[5], KEYS[6]
local prioritized, counter, marker, id = KEYS[8], KEYS[9], KEYS[10], ARGV[4]
local meta = call('HMGET', meta_key, 'paused', 'concurrency', 'opts.maxLenEvents')
promote_due(ARGV[1], wait, prioritized, events, KEYS[7], counter, marker, is_blocked(meta[1], meta[2], active),
  tonumber(ARGV[2]))

local stored = call('HMGET', job, 'name', 'priority', 'atm')
if not stored[1] and call('EXISTS', job) == 0 then
  return -1
end
local refused = unlock(job .. ':lock', ARGV[5], KEYS[11], id)
if refused then
  return refused
end
local fields = ARGV[6] ~= '' and cmsgpack.unpack(ARGV[6]) or {}
if call('LREM', active, '-1', id) == 0 then
  if fields[1] then
    call('HSET', job, unpack(fields))
  end
  return -3
end

local priority = tonumber(stored[2] or 0)
if priority == 0 then
  call(ARGV[3], wait, id)
else
  push_prioritized(prioritized, counter, priority, id)
end
-- Asked again: the job itself may have been the one that made the queue full.
if not is_blocked(meta[1], meta[2], active) then
  call('ZADD', marker, '0', '0')
end
fields[#fields + 1] = 'atm'
fields[#fields + 1] = (stored[3] or 0) + 1
call('HSET', job, unpack(fields))
local cap = meta[3] or default_cap(meta_key)
call('XADD', events, 'MAXLEN', '~', cap, '*', 'event', 'waiting', 'jobId', id, 'prev', 'active')
return 0
