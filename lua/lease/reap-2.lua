-- SPDX-License-Identifier: MIT
--[[ Give back jobs whose lease has ended, at most 100 of them.   KEYS[1] active   KEYS[2] pending
     ARGV[1] queue base
     Returns how many. ]]
local call, base = redis.call, ARGV[1]
--- @include "lease_clock"
--- @include "lease_giveback"
return give_back(call('ZRANGEBYSCORE', KEYS[1], '-inf', digits(clock()), 'LIMIT', 0, 100))
