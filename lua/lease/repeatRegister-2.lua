-- SPDX-License-Identifier: MIT
--[[ Register a repeat; one that exists stays as it is.   KEYS[1] repeat   KEYS[2] record
     ARGV[1] name   ARGV[2] every ms, 0 = its times are computed by the caller   ARGV[3] template
     ARGV[4] `in` or `at`   ARGV[5] ms from now, or the first time   ARGV[6] queue base   ARGV[7..] more fields and values
     Returns the first time in ms, or 0 when the name is registered already. ]]
local call, base = redis.call, ARGV[6]
--- @include "lease_clock"
--- @include "lease_due"
local first = tonumber(ARGV[5])
if ARGV[4] == 'in' then
  first = clock() + first
end
if call('ZADD', KEYS[1], 'NX', digits(first), ARGV[1]) == 0 then
  return 0
end
call('DEL', KEYS[2])
call('HSET', KEYS[2], 'every_ms', ARGV[2], 'template', ARGV[3], unpack(ARGV, 7))
announce('due:repeat', digits(first))
return first
