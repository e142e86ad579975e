-- SPDX-License-Identifier: MIT
--[[ Delete the waiting jobs of one lane. Jobs in flight, counters and settings stay.   KEYS[1] lane
     ARGV[1] queue base   ARGV[2] group
     Returns how many. ]]
local call, base, loud = redis.call, ARGV[1], false
--- @include "lease_lanes"
--- @include "lease_drain"
local count = drain_set(KEYS[1])
unring_lane(ARGV[2])
return count
