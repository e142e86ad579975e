-- SPDX-License-Identifier: MIT
-- Marks one job as claimed and answers what the reader of `fields` wants, or nil when the id has no row: such an
-- id is dropped. An owner is what a dead worker's jobs are found by, so a claim without one removes an old one.
--- @include "lease_once"
local function mark_claimed(id, owner)
  local row = base .. 'job:' .. id
  local f = call('HMGET', row, 'attempts', 'payload', 'owner', 'group')
  if not f[1] then
    return nil
  end
  local token = digits(f[1] + 1)
  if owner and owner ~= '' then
    call('HSET', row, 'attempts', token, 'state', 'active', 'owner', owner)
  else
    call('HSET', row, 'attempts', token, 'state', 'active')
    if f[3] then
      call('HDEL', row, 'owner')
    end
  end
  return { id, f[2], tonumber(token), f[4] or nil }
end

-- Claims ids popped from one set under one deadline; adds the rows to `rows` and answers how many there were.
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
