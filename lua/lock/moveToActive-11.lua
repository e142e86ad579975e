-- SPDX-License-Identifier: MIT
--[[ Take the next job.
     KEYS[1] wait   KEYS[2] active   KEYS[3] prioritized   KEYS[4] events   KEYS[5] stalled (unused)
     KEYS[6] limiter   KEYS[7] delayed   KEYS[8] paused (unused)   KEYS[9] meta   KEYS[10] pc   KEYS[11] marker
     ARGV[1] key base   ARGV[2] now ms   ARGV[3] msgpack {token, lockDuration ms, limiter {max, duration}?, name?}
     Returns {flat hash, id, 0, 0}, or {0, 0, ms until the rate limit ends, absolute ms of the next delayed job}. ]]
local call = redis.call
--- @include "fetch_next"
local keys, args = KEYS, ARGV
local meta = call('HMGET', keys[9], 'paused', 'concurrency', 'max')
return fetch_next(args[1], keys[1], keys[2], keys[3], keys[4], keys[6], keys[7], keys[10], keys[11], keys[9], meta,
  args[2], cmsgpack.unpack(args[3])) or { 0, 0, 0, 0 }
