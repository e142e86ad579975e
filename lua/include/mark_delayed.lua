-- SPDX-License-Identifier: MIT
-- P.mark1: tells sleeping workers when the earliest delayed job is due. Unconditional, also while paused.
local function mark_delayed(marker, delayed)
  local first = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')
  if first[1] then
    call('ZADD', marker, first[2] / 4096, '1')
  end
end
