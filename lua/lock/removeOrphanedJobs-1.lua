-- SPDX-License-Identifier: MIT
--[[ Remove those of some jobs that no state knows.   KEYS[1] key base
     ARGV: number of states, the states, number of sub-keys, the sub-keys (such as logs), then the ids
     Returns how many were removed. ]]
local call = redis.call
local base, at = KEYS[1], 1

local function read_names()
  local names, count = {}, tonumber(ARGV[at])
  for i = 1, count do
    names[i] = ARGV[at + i]
  end
  at = at + count + 1
  return names
end

local lookup = { list = 'LPOS', zset = 'ZSCORE', set = 'SISMEMBER' }
local places = {}
for _, state in ipairs(read_names()) do
  local command = lookup[call('TYPE', base .. state).ok]
  if command then
    places[#places + 1] = { command, base .. state }
  end
end
local sub_keys = read_names()

local function is_known(id)
  for _, place in ipairs(places) do
    local found = call(place[1], place[2], id)
    if found and (place[1] ~= 'SISMEMBER' or found == 1) then
      return true
    end
  end
  return false
end

local removed = 0
for i = at, #ARGV do
  if not is_known(ARGV[i]) then
    local job = base .. ARGV[i]
    local keys = { job }
    for _, name in ipairs(sub_keys) do
      keys[#keys + 1] = job .. ':' .. name
    end
    call('DEL', unpack(keys))
    removed = removed + 1
  end
end
return removed
