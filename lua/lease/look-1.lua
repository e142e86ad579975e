-- SPDX-License-Identifier: MIT
--[[ Show whether a queue needs maintenance, and when it will. Reads only.   KEYS[1] queue base   ARGV none
     Returns [server ms, due ms of the next scheduled job or 0, earliest deadline of a lease or 0, signals in the outbox]. ]]
local call, base = redis.call, KEYS[1]
--- @include "lease_clock"
local function head(name)
  return math.floor(tonumber(call('ZRANGE', base .. name, 0, 0, 'WITHSCORES')[2]) or 0)
end
return { clock(), head('schedule'), head('active'), call('LLEN', base .. 'flow:outbox') }
