-- SPDX-License-Identifier: MIT
--[[ Make the next job of a scheduler, asked for by whoever took the current one.
     KEYS[1] repeat   KEYS[2] delayed   KEYS[3] wait   KEYS[4] paused   KEYS[5] meta   KEYS[6] prioritized
     KEYS[7] marker   KEYS[8] id   KEYS[9] events   KEYS[10] pc   KEYS[11] producing job (unused)   KEYS[12] active
     ARGV[1] next ms (pattern; empty with every)   ARGV[2] scheduler id   ARGV[3] data (unused)
     ARGV[4] msgpack options of the job to make   ARGV[5] now ms   ARGV[6] key base   ARGV[7] id of the producing job
     Returns the new job's id; nil when there is no such scheduler, the producer is not its current job (a retry,
     an outdated one), or the next job exists. ]]
local call = redis.call
--- @include "default_cap"
--- @include "enqueue"
--- @include "every"
local repeat_key, scheduler, base = KEYS[1], ARGV[2], ARGV[6]
local id_prefix, record_key = 'repeat:' .. scheduler .. ':', base .. 'repeat:' .. scheduler
local previous = call('ZSCORE', repeat_key, scheduler)
if not previous or ARGV[7] ~= id_prefix .. previous then
  return nil
end

local job_opts = cmsgpack.unpack(ARGV[4])
local options = job_opts['repeat'] or {}
local stored = call('HMGET', record_key, 'name', 'data', 'every', 'startDate', 'offset')
local every, now, moment = tonumber(stored[3] or options.every), tonumber(ARGV[5]), tonumber(ARGV[1])
if every then
  local offset = tonumber(stored[5] or options.offset or 0)
  moment = next_every(tonumber(previous), every, now, offset, tonumber(stored[4] or nil))
end
local cap = call('HGET', KEYS[5], 'opts.maxLenEvents') or default_cap(KEYS[5])
local job_id = id_prefix .. slot_text(moment)
if call('EXISTS', base .. job_id) == 1 then
  call('XADD', KEYS[9], 'MAXLEN', '~', cap, '*', 'event', 'duplicated', 'jobId', job_id)
  return nil
end
call('ZADD', repeat_key, moment, scheduler)
call('HINCRBY', record_key, 'ic', 1)
call('INCR', KEYS[8])
job_opts.delay, job_opts.jobId = math.max(moment - now, 0), job_id
enqueue(base, cap, job_id, stored[1], stored[2] or '{}', job_opts, ARGV[5], nil, nil, scheduler)
return job_id
