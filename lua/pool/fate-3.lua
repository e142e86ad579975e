-- SPDX-License-Identifier: MIT
--[[
  Shows in one instant what became of a call whose reply was lost. Reads only.

  KEYS[1] active   KEYS[2] job   KEYS[3] its lock

  ARGV[1] key base   ARGV[2] job id, empty after a lost take   ARGV[3] token   ARGV[4] `ats` of the job as taken

  Returns [lock: 0 none, 1 this token, 2 another; the hash exists; ats; stc; is in active;
           id of another take under this token, or empty; its flat hash].
]]
local call = redis.call
--- @include "each_lock"
local active, job, lock = KEYS[1], KEYS[2], KEYS[3]
local base, id, token, ats = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local holder, fields, exists = false, {}, 0
if id ~= '' then
  holder, exists = call('GET', lock), call('EXISTS', job)
  fields = call('HMGET', job, 'ats', 'stc')
end
local now_ats = fields[1] or '0'

-- fetch-next locks the next job with the same token; it may even be the same job, taken once more.
local is_active, other = 0, ''
each_lock(active, base, function(found, held)
  local same = found == id
  if same then
    is_active = 1
  end
  if held == token and not (same and now_ats == ats) then
    other = found
  end
end)

local state = 0
if holder then
  state = holder == token and 1 or 2
end
local flat = other ~= '' and call('HGETALL', base .. other) or {}
return { state, exists, tonumber(now_ats), tonumber(fields[2] or 0), is_active, other, flat }
