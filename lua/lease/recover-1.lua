-- SPDX-License-Identifier: MIT
--[[
  Gives back every active job of a worker that is dead: those whose row names it as owner. Its tokens are spent.

  stall      counts; past the limit the job is dead with `stalled`; the evidence goes to stacktrace and log
  handback   no stall, no attempt

  KEYS[1] active

  ARGV[1] queue base   ARGV[2] owner with its colon, "<worker id>:"   ARGV[3] stall | handback
  ARGV[4] lapses that are forgiven   ARGV[5] evidence, or empty   ARGV[6] most jobs per call
  ARGV[7] 1 = publish events

  Returns [1 when there may be more, else 0; array of [id, pending | dead | missing, times stalled]].
]]
local call, base, loud = redis.call, ARGV[1], ARGV[7] == '1'
--- @include "lease_clock"
--- @include "lease_settle"
--- @include "lease_stall"
--- @include "lease_owned"
local allowed, evidence, most = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local TRACE_BYTES = 65536

-- The text is extended, never decoded: it may hold what cjson refuses.
local function trace_with(row)
  local entry, traces = cjson.encode(evidence), call('HGET', row, 'stacktrace')
  local inner = traces and traces:match('^%s*%[(.*)%]%s*$')
  if not inner or inner:match('^%s*$') or #inner > TRACE_BYTES then
    return '[' .. entry .. ']'
  end
  return '[' .. inner .. ',' .. entry .. ']'
end

local function give_back_stalled(id, row, attempts)
  if evidence == '' then
    return stall(id, allowed, 'spent', attempts)
  end
  call('RPUSH', row .. ':logs', evidence)
  return stall(id, allowed, 'spent', attempts, 'stacktrace', trace_with(row))
end

local function give_back(id, row, attempts)
  if not attempts then
    call('ZREM', KEYS[1], id)
    return { id, 'missing', 0 }
  end
  if ARGV[3] == 'stall' then
    local where, count = give_back_stalled(id, row, attempts)
    return { id, where, count }
  end
  local job = load_job(id)
  requeue(job, 'budget_base', raised(job))
  return { id, 'pending', tonumber(call('HGET', row, 'stalled')) or 0 }
end

local rows = {}
for i, id in ipairs(owned_by(KEYS[1], ARGV[2], most)) do
  local row = base .. 'job:' .. id
  rows[i] = give_back(id, row, call('HGET', row, 'attempts'))
end
return { #rows == most and 1 or 0, rows }
