-- SPDX-License-Identifier: MIT
--[[ Claim from the next lane that has something to give.
     KEYS[1] ring   KEYS[2] active   KEYS[3] meta, may be left out: no look at the pause
     ARGV[1] queue base   ARGV[2] lease ms   ARGV[3] `one`, `weight` or `batch`   ARGV[4] owner, or none
     Returns an array of [id, payload, attempts, group], all of one lane under one deadline: one job, as many as the
     lane weighs, or as many as it has and may; empty when no lane can be served or the queue is paused. ]]
local call, base, lease = redis.call, ARGV[1], tonumber(ARGV[2])
--- @include "lease_claim"
--- @include "lease_visit"
if KEYS[3] and call('HGET', KEYS[3], 'paused') == '1' then
  return {}
end
local function share(group, depth)
  if ARGV[3] == 'batch' then
    return math.min(depth, 1000)
  end
  return ARGV[3] == 'weight' and weight_of(group) or 1
end
local rows = {}
while not rows[1] do
  local group, popped = visit_lane(share)
  if not group then
    break
  end
  charge(group, claim_ids(popped, 2, lease, ARGV[4], rows, mark_claimed))
end
if rows[1] and call('EXISTS', KEYS[1]) == 1 then
  push_wake(1)
end
return rows
