-- SPDX-License-Identifier: MIT
--[[ Admit a job to pending.   KEYS[1] row   KEYS[2] pending   KEYS[3] wake
     ARGV[1] id   ARGV[2] payload   ARGV[3] queue base
     ARGV[4] deduplication id, or empty   ARGV[5] ms that it lasts, or empty   ARGV[6..] more fields and values
     Returns 1 (enqueued), 0 (there is such a row: nothing changes), or the id that holds the deduplication id.
     Refuses with EMQKIND. ]]
local call, base = redis.call, ARGV[3]
--- @include "lease_admit"
--- @include "lease_ready"
local refusal = admit(KEYS[1], ARGV[1], 'pending', ARGV[2], ARGV[4], ARGV[5], 6)
if refusal then
  return refusal
end
put_ready(ARGV[1])
return 1
