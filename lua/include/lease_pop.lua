-- SPDX-License-Identifier: MIT
-- Claims ids popped from one set under one deadline; adds the rows to `rows` and answers how many there were.
--- @include "lease_once"
local function claim_ids(popped, step, lease, owner, rows, mark)
  local deadline, scores = nil, {}
  for i = 1, #popped, step do
    local row = mark(popped[i], owner)
    if row then
      deadline = deadline or digits(clock_once() + lease)
      rows[#rows + 1] = row
      scores[#scores + 1] = deadline
      scores[#scores + 1] = popped[i]
    end
  end
  if deadline then
    call('ZADD', base .. 'active', unpack(scores))
  end
  return #scores / 2
end
