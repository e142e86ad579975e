-- SPDX-License-Identifier: MIT
--[[ Count jobs by state.   KEYS[1] key base
     ARGV[1..] state names: wait, paused, active, or any of the sorted sets
     Returns the counts, in the order asked. ]]
local call = redis.call
local counts = {}

-- An id that begins with `0:` is a marker of an ancient version at the next-to-run end: dropped unless it is alone.
local function waiting(key)
  local length = call('LLEN', key)
  local last = length > 0 and call('LINDEX', key, -1)
  if last and string.sub(last, 1, 2) == '0:' then
    if length > 1 then
      call('RPOP', key)
    end
    return length - 1
  end
  return length
end

for i = 1, #ARGV do
  local state = ARGV[i]
  local key = KEYS[1] .. state
  if state == 'wait' or state == 'paused' then
    counts[i] = waiting(key)
  else
    counts[i] = call(state == 'active' and 'LLEN' or 'ZCARD', key)
  end
end
return counts
