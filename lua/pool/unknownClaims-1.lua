-- SPDX-License-Identifier: MIT
--[[
  Finds what an owner holds without knowing it: active jobs under one of its tokens that are not on the list.
  Reads only.

  KEYS[1] active

  ARGV[1] key base   ARGV[2] owner with its colon   ARGV[3] msgpack array of the [id, token] that it knows

  Returns an array of [id, token, flat hash].
]]
local call = redis.call
--- @include "each_lock"
local base, owner = ARGV[1], ARGV[2]

local known = {}
for _, row in ipairs(cmsgpack.unpack(ARGV[3])) do
  known[row[1]] = row[2]
end

local rows = {}
each_lock(KEYS[1], base, function(id, token)
  if token and token:sub(1, #owner) == owner and known[id] ~= token then
    local flat = redis.pcall('HGETALL', base .. id)
    if not flat.err then
      rows[#rows + 1] = { id, token, flat }
    end
  end
end)
return rows
