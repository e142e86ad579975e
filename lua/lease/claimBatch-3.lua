-- SPDX-License-Identifier: MIT
--[[ Claim the oldest flat jobs under one deadline.
     KEYS[1] pending   KEYS[2] active   KEYS[3] meta, may be left out: no look at the pause
     ARGV[1] row prefix   ARGV[2] lease ms   ARGV[3] most jobs   ARGV[4] owner, or none
     Returns an array of [id, payload, attempts] in mint order; fewer or none when there are no more. ]]
local call, base = redis.call, ARGV[1]:sub(1, -5)
--- @include "lease_claim"
local rows, size = {}, math.min(tonumber(ARGV[3]), 1000)
if KEYS[3] and call('HGET', KEYS[3], 'paused') == '1' then
  return {}
end
while #rows < size do
  local popped = call('ZPOPMIN', KEYS[1], size - #rows)
  if not popped[1] then
    break
  end
  claim_ids(popped, 2, tonumber(ARGV[2]), ARGV[4], rows, mark_claimed)
end
for _, row in ipairs(rows) do
  row[4] = nil
end
return rows
