-- SPDX-License-Identifier: MIT
--[[ Count waiting jobs by priority.   KEYS[1] wait   KEYS[2] prioritized
     ARGV[1..] priorities
     Returns the counts, in the order asked. ]]
local call = redis.call
local counts = {}
for i = 1, #ARGV do
  local priority = tonumber(ARGV[i])
  if priority == 0 then
    counts[i] = call('LLEN', KEYS[1])
  else
    local low = priority * 4294967296
    counts[i] = call('ZCOUNT', KEYS[2], low, low + 4294967295)
  end
end
return counts
