-- SPDX-License-Identifier: MIT
--[[ Show the repeats that are due on the server's clock, earliest first.   KEYS[1] repeat
     ARGV[1] queue base   ARGV[2] most names
     Returns [array of [name, its time in ms, flat record], the server's ms, time of the next one or 0]. ]]
local call, base = redis.call, ARGV[1]
--- @include "lease_clock"
local now, rows, found = clock(), {}, nil
found = call('ZRANGEBYSCORE', KEYS[1], '-inf', digits(now), 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for i = 1, #found, 2 do
  rows[#rows + 1] = { found[i], tonumber(found[i + 1]), call('HGETALL', base .. 'repeat:' .. found[i]) }
end
local following = call('ZRANGEBYSCORE', KEYS[1], '(' .. digits(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
return { rows, now, tonumber(following[2]) or 0 }
