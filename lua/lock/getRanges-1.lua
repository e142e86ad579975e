-- SPDX-License-Identifier: MIT
--[[ Ids of several states, by page.   KEYS[1] key base
     ARGV[1] first   ARGV[2] last   ARGV[3] 1 = oldest first   ARGV[4..] state names
     Returns one array of ids per state. Those of lists come newest first either way: with the oldest first it is
     the caller's part to reverse them. ]]
local call = redis.call
local first, last, ascending = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
local lists = { wait = true, paused = true, active = true }
local found = {}
for i = 4, #ARGV do
  local state = ARGV[i]
  local key = KEYS[1] .. state
  if not lists[state] then
    found[#found + 1] = call(ascending and 'ZRANGE' or 'ZREVRANGE', key, first, last)
  elseif ascending then
    found[#found + 1] = call('LRANGE', key, -1 - last, -1 - first)
  else
    found[#found + 1] = call('LRANGE', key, first, last)
  end
end
return found
