-- SPDX-License-Identifier: MIT
--[[ Are as many jobs active as the whole queue allows? A pause does not count.   KEYS[1] meta   KEYS[2] active
     ARGV none
     Returns 1 or nil. ]]
local call = redis.call
--- @include "blocked"
return is_blocked(nil, call('HGET', KEYS[1], 'concurrency'), KEYS[2])
