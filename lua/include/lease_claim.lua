-- SPDX-License-Identifier: MIT
-- Marks one job as claimed and answers what the reader of `fields` wants, or nil when the id has no row: such an
-- id is dropped. An owner is what a dead worker's jobs are found by, so a claim without one removes an old one.
--- @include "lease_pop"
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
