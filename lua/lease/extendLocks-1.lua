-- SPDX-License-Identifier: MIT
--[[ Move the deadlines of many held jobs to one moment.   KEYS[1] active
     ARGV[1] queue base   ARGV[2] lease ms   ARGV[3..] id, token, id, token, ...
     Returns the ids that could not be extended: stale, gone, or no longer in active. ]]
local call, base = redis.call, ARGV[1]
--- @include "lease_extend"
local pairs_of = {}
for i = 3, #ARGV, 2 do
  pairs_of[#pairs_of + 1] = { ARGV[i], ARGV[i + 1] }
end
return extend_all(KEYS[1], pairs_of, tonumber(ARGV[2]))
