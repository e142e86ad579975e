-- SPDX-License-Identifier: MIT
--[[ Give a delayed job another delay, counted from now.
     KEYS[1] delayed   KEYS[2] meta   KEYS[3] marker   KEYS[4] events
     ARGV[1] delay ms   ARGV[2] now ms   ARGV[3] id   ARGV[4] job key
     Returns 0, -1 no such job, -3 not delayed. ]]
local call = redis.call
--- @include "default_cap"
--- @include "delayed_score"
--- @include "mark_delayed"
local delayed, id, job = KEYS[1], ARGV[3], ARGV[4]
if call('EXISTS', job) == 0 then
  return -1
end
-- Before the removal: the job's own place may be the one that the sequence counts from.
local score, due = delayed_score(delayed, tonumber(ARGV[2]), tonumber(ARGV[1]))
if call('ZREM', delayed, id) == 0 then
  return -3
end
call('HSET', job, 'delay', ARGV[1])
call('ZADD', delayed, score, id)
local cap = call('HGET', KEYS[2], 'opts.maxLenEvents') or default_cap(KEYS[2])
call('XADD', KEYS[4], 'MAXLEN', '~', cap, '*', 'event', 'delayed', 'jobId', id, 'delay', due)
mark_delayed(KEYS[3], delayed)
return 0
