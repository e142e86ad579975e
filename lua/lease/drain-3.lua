-- SPDX-License-Identifier: MIT
--[[ Delete the waiting jobs of the queue, in pending and in the lanes; the scheduled ones when their key is given.
     Active and dead jobs, settings and repeats stay.   KEYS[1] queue base   KEYS[2] pending   KEYS[3] schedule, or left out
     ARGV none
     Returns how many. ]]
local call, base, loud = redis.call, KEYS[1], false
--- @include "lease_lanes"
--- @include "lease_drain"
local count = 0
-- A parent whose last child goes here waits from then on, so it goes, too.
repeat
  local before = count
  count = count + drain_set(KEYS[2])
  for _, group in ipairs(all_lanes()) do
    count = count + drain_set(lane_of(group))
    unring_lane(group)
  end
  if KEYS[3] then
    count = count + drain_set(KEYS[3])
  end
until count == before
return count
