-- SPDX-License-Identifier: MIT
--[[ Cancel a repeat.   KEYS[1] repeat   KEYS[2] record   ARGV[1] name
     Returns 1, or 0 when there is none of that name. ]]
redis.call('DEL', KEYS[2])
return redis.call('ZREM', KEYS[1], ARGV[1])
