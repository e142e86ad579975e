-- SPDX-License-Identifier: MIT
--[[
  Takes lapsed leases back, where that is safe: the lock is missing, the job is still in active, and `ats` says
  that nobody has taken it since. A lock that still holds the token is renewed.

  KEYS[1] active   KEYS[2] stalled

  ARGV[1] key base   ARGV[2] lock duration, ms   ARGV[3] msgpack array of [id, token, ats]

  Returns the ids that were refused: those jobs belong to somebody else now, or to nobody.
]]
local call = redis.call
local active, stalled, base, duration = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

-- Read once, and only when a lock is missing at all: the usual renewal does not need it.
local members
local function is_active(id)
  if not members then
    members = {}
    for _, member in ipairs(call('LRANGE', active, 0, -1)) do
      members[member] = true
    end
  end
  return members[id]
end

local function may_hold(id, token, ats)
  local held = call('GET', base .. id .. ':lock')
  if held then
    return held == token
  end
  return is_active(id) and redis.pcall('HGET', base .. id, 'ats') == ats -- false where it is no hash
end

local refused = {}
for _, row in ipairs(cmsgpack.unpack(ARGV[3])) do
  local id, token = row[1], row[2]
  if may_hold(id, token, tostring(row[3])) then
    call('SET', base .. id .. ':lock', token, 'PX', duration)
    call('SREM', stalled, id)
  else
    refused[#refused + 1] = id
  end
end
return refused
