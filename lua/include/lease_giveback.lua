-- SPDX-License-Identifier: MIT
-- Gives jobs whose ids the caller has read from active back to where they are taken from. Ids without a row are
-- only removed. The flat ones are added with one command.
--- @include "lease_ready"
local function give_back(ids)
  local flat, count = {}, 0
  for _, id in ipairs(ids) do
    local row = base .. 'job:' .. id
    local f = call('HMGET', row, 'attempts', 'group')
    if f[1] then
      count = count + 1
      call('HSET', row, 'state', 'pending')
      if f[2] then
        discharge(f[2])
        put_ready(id, f[2])
      else
        flat[#flat + 1], flat[#flat + 2] = '0', id
      end
    end
  end
  if ids[1] then
    call('ZREM', base .. 'active', unpack(ids))
  end
  if flat[1] then
    call('ZADD', base .. 'pending', unpack(flat))
    push_wake(1)
  end
  return count
end
