-- SPDX-License-Identifier: MIT
--[[ Count the jobs of states.   KEYS[1] queue base
     ARGV[1..] pending, active, schedule, dead, lanes, completed, failed
     Returns a number for each. ]]
local call, base = redis.call, KEYS[1]
--- @include "lease_places"
local counts = {}
for i, name in ipairs(ARGV) do
  if name == 'completed' or name == 'failed' then
    counts[i] = tonumber(call('HGET', base .. 'metrics:' .. name, 'count')) or 0
  elseif name == 'lanes' then
    counts[i] = 0
    for _, group in ipairs(all_lanes()) do
      counts[i] = counts[i] + call('ZCARD', lane_of(group))
    end
  else
    counts[i] = call('ZCARD', base .. name)
  end
end
return counts
