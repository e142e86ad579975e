-- SPDX-License-Identifier: MIT
--[[ Show what time is left to each lease, soonest first.   KEYS[1] active   ARGV[1] most jobs
     Returns an array of [id, ms left on the server's clock (negative: over)]. ]]
local call, rows = redis.call, {}
--- @include "lease_clock"
local now = clock()
local found = call('ZRANGE', KEYS[1], 0, ARGV[1] - 1, 'WITHSCORES')
for i = 1, #found, 2 do
  rows[#rows + 1] = { found[i], found[i + 1] - now }
end
return rows
