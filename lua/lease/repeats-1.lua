-- SPDX-License-Identifier: MIT
--[[ Show repeats with their records. Reads only.   KEYS[1] repeat
     ARGV[1] queue base   ARGV[2] place of the first   ARGV[3] place of the last, -1 = of all
     ARGV[4] 1 = the next to fire first, else the last
     Returns an array of [name, its next time in ms, flat record]. ]]
local call, base, rows = redis.call, ARGV[1], {}
local command = ARGV[4] == '1' and 'ZRANGE' or 'ZREVRANGE'
local found = call(command, KEYS[1], ARGV[2], ARGV[3], 'WITHSCORES')
for i = 1, #found, 2 do
  rows[#rows + 1] = { found[i], tonumber(found[i + 1]), call('HGETALL', base .. 'repeat:' .. found[i]) }
end
return rows
