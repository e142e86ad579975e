-- SPDX-License-Identifier: MIT
--[[ Admit a job to the lane of a group.
     KEYS[1] row   KEYS[2] lane   KEYS[3] ring   KEYS[4] paused   KEYS[5] glimit   KEYS[6] gactive   KEYS[7] wake
     ARGV[1] id   ARGV[2] payload   ARGV[3] group   ARGV[4] queue base
     ARGV[5] deduplication id, or empty   ARGV[6] ms that it lasts, or empty   ARGV[7..] more fields and values
     Returns 1 (enqueued), 0 (duplicate), or the id that holds the deduplication id. Refuses with EMQKIND. ]]
local call, base, group = redis.call, ARGV[4], ARGV[3]
--- @include "lease_admit"
--- @include "lease_ready"
local refusal = admit(KEYS[1], ARGV[1], 'pending', ARGV[2], ARGV[5], ARGV[6], 7)
if refusal then
  return refusal
end
call('HSET', KEYS[1], 'group', group)
put_ready(ARGV[1], group)
return 1
