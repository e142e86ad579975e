-- SPDX-License-Identifier: MIT
--[[ Create or change a scheduler and put its next job in place.
     KEYS[1] repeat   KEYS[2] delayed   KEYS[3] wait   KEYS[4] paused   KEYS[5] meta   KEYS[6] prioritized
     KEYS[7] marker   KEYS[8] id   KEYS[9] events   KEYS[10] pc   KEYS[11] active
     ARGV[1] next ms (pattern; ignored with every)
     ARGV[2] msgpack {name, startDate?, endDate?, tz?, pattern?, every?, limit?, offset?}, dates in ms
     ARGV[3] scheduler id   ARGV[4] template data JSON   ARGV[5] msgpack template options
     ARGV[6] msgpack options of the job to make   ARGV[7] now ms   ARGV[8] key base   ARGV[9] unused
     Returns {job id, delay ms}, -10 the next job exists (pattern), -11 no free slot within 32 steps (every). ]]
local call = redis.call
--- @include "default_cap"
--- @include "remove_hard"
--- @include "enqueue"
--- @include "every"
local repeat_key, delayed, base, scheduler = KEYS[1], KEYS[2], ARGV[8], ARGV[3]
local now, rule, job_opts = tonumber(ARGV[7]), cmsgpack.unpack(ARGV[2]), cmsgpack.unpack(ARGV[6])
local record_key = base .. 'repeat:' .. scheduler
local id_prefix = 'repeat:' .. scheduler .. ':'

-- Takes back the pending job of the current slot. A paused queue is searched in `paused`, where version 6 keeps
-- none: the old job then stays and the schedule moves on by a slot, as it does there.
local function withdraw(slot)
  local id = id_prefix .. slot
  if call('EXISTS', base .. id) == 0 then
    return false
  end
  local waiting = call('HEXISTS', KEYS[5], 'paused') == 1 and KEYS[4] or KEYS[3]
  if call('ZREM', delayed, id) == 1 or call('ZREM', KEYS[6], id) == 1 or call('LREM', waiting, 1, id) == 1 then
    remove_hard(base, id)
    return true
  end
  return false
end

local function occupied(moment)
  return call('EXISTS', base .. id_prefix .. slot_text(moment)) == 1
end

-- The record is built anew. What survives is the count of runs, and the offset when the call brings none.
local function store_rule(moment)
  local old = call('HMGET', record_key, 'ic', 'offset')
  local template = ARGV[5] ~= '' and cmsgpack.unpack(ARGV[5]) or {}
  local fields = { 'name', rule.name, 'ic', old[1] or 1 }
  local given = { tz = rule.tz, limit = rule.limit, pattern = rule.pattern, startDate = rule.startDate,
    endDate = rule.endDate, every = rule.every, offset = rule.offset or old[2] or nil }
  if next(template) ~= nil then
    given.opts = cjson.encode(template)
  end
  if ARGV[4] ~= '' and ARGV[4] ~= '{}' then
    given.data = ARGV[4]
  end
  for field, value in pairs(given) do
    fields[#fields + 1], fields[#fields + 2] = field, value
  end
  call('ZADD', repeat_key, moment, scheduler)
  call('DEL', record_key)
  call('HSET', record_key, unpack(fields))
end

local cap = call('HGET', KEYS[5], 'opts.maxLenEvents') or default_cap(KEYS[5])
local previous = call('ZSCORE', repeat_key, scheduler)
local every, options = rule.every, job_opts['repeat'] or {}
local offset = rule.offset or options.offset or 0
local moment, new_offset, changed = tonumber(ARGV[1]), offset, false
if every then
  changed = previous and tonumber(call('HGET', record_key, 'every') or 0) ~= tonumber(every)
  local from = not changed and previous and tonumber(previous) or nil
  moment, new_offset = next_every(from, tonumber(every), now, tonumber(offset), tonumber(rule.startDate))
end
local removed = previous and withdraw(previous)
if not removed then
  rule.offset = new_offset
elseif every and not changed then
  moment = tonumber(previous)
end
if every then
  local steps = 0
  while occupied(moment) do
    if steps == 32 then
      return -11
    end
    moment, steps = moment + every, steps + 1
  end
elseif not removed and occupied(moment) then
  return -10
end

local delay = math.max(moment - now, 0)
local job_id = id_prefix .. slot_text(moment)
store_rule(moment)
call('INCR', KEYS[8])
job_opts.delay, job_opts.jobId = delay, job_id
enqueue(base, cap, job_id, rule.name, ARGV[4], job_opts, ARGV[7], nil, nil, scheduler)
return { job_id, delay }
