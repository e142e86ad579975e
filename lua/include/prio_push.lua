-- SPDX-License-Identifier: MIT
-- P.prio-push without its marker: behind all jobs of the same priority, in front of the next one.
local function push_prioritized(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * 4294967296 + turn % 4294967296, id)
end
