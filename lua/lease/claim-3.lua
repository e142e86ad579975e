-- SPDX-License-Identifier: MIT
--[[ Claim the oldest flat job.   KEYS[1] pending   KEYS[2] active   KEYS[3] meta, may be left out: no look at the pause
     ARGV[1] row prefix   ARGV[2] lease ms   ARGV[3] owner, or none
     Returns [id, payload, attempts]; an empty array when nothing is pending or the queue is paused. ]]
local call, base = redis.call, ARGV[1]:sub(1, -5)
--- @include "lease_claim"
if KEYS[3] and call('HGET', KEYS[3], 'paused') == '1' then
  return {}
end
while true do
  local popped = call('ZPOPMIN', KEYS[1])
  local rows = {}
  if not popped[1] then
    return {}
  end
  if claim_ids(popped, 2, tonumber(ARGV[2]), ARGV[3], rows, mark_claimed) == 1 then
    return { rows[1][1], rows[1][2], rows[1][3] }
  end
end
