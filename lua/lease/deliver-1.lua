-- SPDX-License-Identifier: MIT
--[[ Apply the end of a child of another queue to its parent here. Twice is once.   KEYS[1] row of the parent
     ARGV[1] queue base   ARGV[2] parent   ARGV[3] child   ARGV[4] `ok`, or the policy of a failure: fp | id
     ARGV[5] result or error   ARGV[6] 1 = publish events
     Returns 1. ]]
local call, base, loud = redis.call, ARGV[1], ARGV[6] == '1'
--- @include "lease_tell"
--- @include "lease_flow"
if ARGV[4] == 'ok' then
  child_completed(ARGV[2], ARGV[3], ARGV[5])
else
  child_failed(ARGV[2], ARGV[3], ARGV[4], ARGV[5])
end
return 1
