-- SPDX-License-Identifier: MIT
--[[
  Makes the next job of a series again when it is nowhere. The caller has computed the slot from the record it
  read; the slot it started from is compared, so that a series that has moved on meanwhile is left alone.

  KEYS[1] repeat        KEYS[2] delayed   KEYS[3] wait   KEYS[4] paused   KEYS[5] meta
  KEYS[6] prioritized   KEYS[7] marker    KEYS[8] id     KEYS[9] events   KEYS[10] pc   KEYS[11] active

  ARGV[1] key base   ARGV[2] now, ms   ARGV[3] scheduler id   ARGV[4] slot the record names, ms
  ARGV[5] slot to fill: the same, or the next one, ms         ARGV[6] msgpack options of the job to make

  Returns [gone: no such scheduler | moved: it has another slot now | alive: its job is there | taken: a job is
           in the slot to fill | made, id of the job concerned or empty].
]]
local call = redis.call
--- @include "default_cap"
--- @include "enqueue"

local schedulers, delayed, wait, paused, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local prioritized, counter, active = KEYS[6], KEYS[8], KEYS[11]
local base, now, id = ARGV[1], ARGV[2], ARGV[3]
local slot = string.format('%.0f', tonumber(ARGV[5]))
local record = base .. 'repeat:' .. id

local score = call('ZSCORE', schedulers, id)
if not score or call('EXISTS', record) == 0 then
  return { 'gone', '' }
end
local current = 'repeat:' .. id .. ':' .. string.format('%.0f', tonumber(score))
if tonumber(score) ~= tonumber(ARGV[4]) then
  return { 'moved', current }
end

-- Waiting or running, the series goes on by itself: whoever takes this job makes the next one.
local function is_alive(job)
  return call('ZSCORE', delayed, job) or call('ZSCORE', prioritized, job) or call('LPOS', wait, job)
    or call('LPOS', active, job) or call('LPOS', paused, job)
end
if is_alive(current) then
  return { 'alive', current }
end

local job = 'repeat:' .. id .. ':' .. slot
if job ~= current and is_alive(job) then
  return { 'taken', job }
end
if call('EXISTS', base .. job) == 1 then
  local kept = call('ZSCORE', base .. 'completed', job) or call('ZSCORE', base .. 'failed', job)
  if kept then
    return { 'taken', job }
  end
end

local fields = call('HMGET', record, 'name', 'data')
local opts = cmsgpack.unpack(ARGV[6])
opts.delay = math.max(tonumber(slot) - tonumber(now), 0)
opts.jobId = job
call('ZADD', schedulers, slot, id)
if job ~= current then
  call('HINCRBY', record, 'ic', 1)
end
call('INCR', counter)
local cap = call('HGET', meta, 'opts.maxLenEvents') or default_cap(meta)
enqueue(base, cap, job, fields[1] or '', fields[2] or '{}', opts, now, nil, nil, id)
return { 'made', job }
