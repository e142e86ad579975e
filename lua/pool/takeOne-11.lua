-- SPDX-License-Identifier: MIT
--[[ Take the next job and say whether anything is left. If not, there is no marker left either: the wire leaves one after
     every take, and on a queue with little to do that wakes another worker in vain for each job, and this one again.
     KEYS[1] wait   KEYS[2] active   KEYS[3] prioritized   KEYS[4] events   KEYS[5] stalled (unused)
     KEYS[6] limiter   KEYS[7] delayed   KEYS[8] paused (unused)   KEYS[9] meta   KEYS[10] pc   KEYS[11] marker
     ARGV[1] key base   ARGV[2] now ms   ARGV[3] msgpack {token, lockDuration ms, limiter {max, duration}?, name?}
     Returns what moveToActive does; {flat hash, id, 0, absolute ms of the next delayed job or 0, 1} for the last job. ]]
local call = redis.call
--- @include "fetch_next"
local keys, args = KEYS, ARGV
local meta = call('HMGET', keys[9], 'paused', 'concurrency', 'max')
local found = fetch_next(args[1], keys[1], keys[2], keys[3], keys[4], keys[6], keys[7], keys[10], keys[11], keys[9],
  meta, args[2], cmsgpack.unpack(args[3])) or { 0, 0, 0, 0 }
if found[2] ~= 0 and call('LLEN', keys[1]) == 0 and call('ZCARD', keys[3]) == 0 then
  call('ZREM', keys[11], '0')
  local due = call('ZRANGE', keys[7], '0', '0', 'WITHSCORES')[2]
  found[4], found[5] = due and due / 4096 or 0, 1
end
return found
