-- SPDX-License-Identifier: MIT
--[[
  Gives back every active job of a worker that is dead: those whose lock holds a token of this owner, and those
  of the held list whose lock has lapsed and which nobody has taken since (same `ats`). A lock of another owner,
  or a job without a lock that is not on the list, is left to its holder or to the stalled sweep.

  stall      stc + 1; over the limit, unless a live scheduler made it, `defa` makes the next taker fail it;
             front of wait; the evidence goes to stacktrace and log
  handback   no attempt, no stall; front of the line of its kind

  KEYS[1] active   KEYS[2] wait     KEYS[3] prioritized   KEYS[4] stalled
  KEYS[5] meta     KEYS[6] marker   KEYS[7] events        KEYS[8] repeat

  ARGV[1] key base   ARGV[2] now, ms   ARGV[3] owner with its colon, "<worker id>:"   ARGV[4] stall | handback
  ARGV[5] most stalls allowed          ARGV[6] evidence, one text, or empty
  ARGV[7] most jobs per call           ARGV[8] msgpack array of [id, ats] that the worker was known to hold

  Returns [1 when there may be more, else 0; array of [id, wait | prioritized | failed | missing, stc]].
]]
local call = redis.call
--- @include "default_cap"
--- @include "each_lock"
--- @include "queue_blocked"
--- @include "take_out"

local active, wait, prioritized, stalled = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local meta, marker, events, schedulers = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local base, owner, stall = ARGV[1], ARGV[3], ARGV[4] == 'stall'
local allowed, evidence, most = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local TRACE_BYTES = 65536

local held = {}
for _, row in ipairs(cmsgpack.unpack(ARGV[8])) do
  held[row[1]] = tostring(row[2])
end

local function is_ours(id, lock)
  if lock then
    return lock:sub(1, #owner) == owner
  end
  return held[id] ~= nil and redis.pcall('HGET', base .. id, 'ats') == held[id] -- false where it is no hash
end

-- Newest first, which is the order of the list: given back in this order, the oldest is the next to run.
local function owned()
  local found, seen = {}, {}
  each_lock(active, base, function(id, lock)
    if not seen[id] and is_ours(id, lock) then
      found[#found + 1], seen[id] = id, true
    end
    return #found == most
  end)
  return found
end

-- The text is extended, never decoded: what is there may hold what cjson refuses.
local function note_evidence(id, job, traces, opts)
  if evidence == '' then
    return
  end
  local entry, head = cjson.encode(evidence), traces and traces:match('^%s*%[(.*)%]%s*$')
  if not traces or traces == '' or (head and head:match('^%s*$')) then
    call('HSET', job, 'stacktrace', '[' .. entry .. ']')
  elseif head and #traces < TRACE_BYTES then
    call('HSET', job, 'stacktrace', '[' .. head .. ',' .. entry .. ']')
  end
  call('RPUSH', job .. ':logs', evidence)
  local keep = opts and tonumber(opts:match('"kl":(%d+)'))
  if keep and keep > 0 then
    call('LTRIM', job .. ':logs', -keep, -1)
  end
end

local function is_scheduled(rjk)
  return rjk and (call('EXISTS', base .. 'repeat:' .. rjk) == 1 or call('ZSCORE', schedulers, rjk))
end

local function give_back_stalled(id, job)
  local fields = call('HMGET', job, 'rjk', 'stacktrace', 'opts')
  local stc, where = call('HINCRBY', job, 'stc', 1), 'wait'
  if stc > allowed and not is_scheduled(fields[1]) then
    call('HSET', job, 'defa', 'job stalled more than allowable limit')
    where = 'failed'
  end
  note_evidence(id, job, fields[2], fields[3])
  call('RPUSH', wait, id)
  call('XADD', events, '*', 'event', 'waiting', 'jobId', id, 'prev', 'active')
  call('XADD', events, '*', 'event', 'stalled', 'jobId', id)
  return { id, where, stc }
end

local function hand_back(id, job)
  local fields = call('HMGET', job, 'priority', 'stc')
  local priority, where = tonumber(fields[1]) or 0, 'wait'
  if priority > 0 then
    call('ZADD', prioritized, priority * 4294967296, id)
    where = 'prioritized'
  else
    call('RPUSH', wait, id)
  end
  call('XADD', events, '*', 'event', 'waiting', 'jobId', id, 'prev', 'active')
  return { id, where, tonumber(fields[2]) or 0 }
end

local ids = owned()
if #ids == 0 then
  return { 0, {} }
end
-- As the sweep does: trim before, so that what is told now survives.
local cap = call('HGET', meta, 'opts.maxLenEvents') or default_cap(meta)
call('XTRIM', events, 'MAXLEN', '~', cap)
take_out(active, ids)
local rows = {}
for i = 1, #ids do
  local id = ids[i]
  local job = base .. id
  call('DEL', job .. ':lock')
  call('SREM', stalled, id)
  if call('TYPE', job).ok ~= 'hash' then -- gone, or no job: it must not take the others along
    rows[i] = { id, 'missing', 0 }
  else
    rows[i] = stall and give_back_stalled(id, job) or hand_back(id, job)
  end
end
if not queue_blocked(meta, active) then
  call('ZADD', marker, '0', '0')
end
return { #ids == most and 1 or 0, rows }
