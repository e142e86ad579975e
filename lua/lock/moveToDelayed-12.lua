-- SPDX-License-Identifier: MIT
--[[ Put an active job aside for a while, and take the next one when asked.
     KEYS[1] marker   KEYS[2] active   KEYS[3] prioritized   KEYS[4] delayed   KEYS[5] job   KEYS[6] events
     KEYS[7] meta   KEYS[8] stalled   KEYS[9] wait   KEYS[10] limiter   KEYS[11] paused (unused)   KEYS[12] pc
     ARGV[1] key base   ARGV[2] now ms   ARGV[3] id   ARGV[4] token   ARGV[5] delay ms
     ARGV[6] 1 = this was no attempt   ARGV[7] msgpack flat array of further fields, or empty
     ARGV[8] 1 = take the next job   ARGV[9] msgpack {token, lockDuration ms, limiter?, name?} when it is 1
     Returns 0, {flat hash, id, 0, 0}, -1 no such job, -2 no lock, -3 not active, -6 another's lock. ]]
local call = redis.call
--- @include "default_cap"
--- @include "delayed_score"
--- @include "mark_delayed"
--- @include "unlock"
local marker, active, delayed, job, events, meta_key = KEYS[1], KEYS[2], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local now, id = ARGV[2], ARGV[3]
local stored = call('HMGET', job, 'name', 'atm')
if not stored[1] and call('EXISTS', job) == 0 then
  return -1
end
local refused = unlock(job .. ':lock', ARGV[4], KEYS[8], id)
if refused then
  return refused
end
local fields = ARGV[7] ~= '' and cmsgpack.unpack(ARGV[7]) or {}
if call('LREM', active, '-1', id) == 0 then
  if fields[1] then
    call('HSET', job, unpack(fields))
  end
  return -3
end

local score, due = delayed_score(delayed, tonumber(now), tonumber(ARGV[5]))
local last = #fields
fields[last + 1], fields[last + 2] = 'delay', ARGV[5]
if ARGV[6] == '0' then
  fields[last + 3], fields[last + 4] = 'atm', (stored[2] or 0) + 1
end
call('HSET', job, unpack(fields))
call('ZADD', delayed, score, id)
local meta = call('HMGET', meta_key, 'paused', 'concurrency', 'max', 'opts.maxLenEvents')
local cap = meta[4] or default_cap(meta_key)
call('XADD', events, 'MAXLEN', '~', cap, '*', 'event', 'delayed', 'jobId', id, 'delay', due)
if ARGV[8] == '1' then
  --- @include "fetch_next"
  local found = fetch_next(ARGV[1], KEYS[9], active, KEYS[3], events, KEYS[10], delayed, KEYS[12], marker, meta_key, meta,
    now, cmsgpack.unpack(ARGV[9]))
  -- Only a job counts here. The other answers (a rate limit, the next due time) are dropped.
  if found and found[2] ~= 0 then
    return found
  end
end
mark_delayed(marker, delayed)
return 0
