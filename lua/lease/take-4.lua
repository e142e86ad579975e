-- SPDX-License-Identifier: MIT
--[[ Claim for a worker with free slots: a turn of the ring, then the flat jobs.
     KEYS[1] pending   KEYS[2] active   KEYS[3] ring   KEYS[4] meta
     ARGV[1] queue base   ARGV[2] lease ms   ARGV[3] most jobs   ARGV[4] owner
     ARGV[5] most starts per window, or empty   ARGV[6] the window in ms, or empty   ARGV[7] 1 = publish events, 2 = if somebody listens
     Returns [array of [id, flat row], ms until the rate window ends or 0, due ms of the next scheduled job or 0]. ]]
local call, base = redis.call, ARGV[1]
--- @include "lease_heard"
local loud = is_loud(ARGV[7])
--- @include "lease_take"
return take_many(tonumber(ARGV[3]), tonumber(ARGV[2]), ARGV[4], ARGV[5], ARGV[6])
