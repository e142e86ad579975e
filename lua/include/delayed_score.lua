-- SPDX-License-Identifier: MIT
-- P.delayed-score: jobs due in the same millisecond keep their order by the lower twelve bits of the score.
local function delayed_score(delayed, from, delay)
  local due = delay > 0 and from + delay or from
  local low = due * 4096
  local high = low + 4095
  local last = call('ZREVRANGEBYSCORE', delayed, high, low, 'WITHSCORES', 'LIMIT', 0, 1)
  if not last[1] then
    return low, due
  end
  return math.min(last[2] + 1, high), due
end
