-- SPDX-License-Identifier: MIT
--- @include "queue_blocked"
--- @include "split_key"
--- @include "delete_keys"
-- P.detach: takes a job out of its parent's dependencies; the last one out lets a waiting parent go (soft) or
-- takes a parent of the same queue along (hard). Priority and delay of the parent are ignored here.
local function detach(job, hard, parent_key, base)
  if not parent_key then
    parent_key = call('HGET', job, 'parentKey')
    if not parent_key or parent_key == '' or call('EXISTS', parent_key) == 0 then
      return false
    end
  end
  if call('SREM', parent_key .. ':dependencies', job) == 0 then
    return false
  end
  if call('SCARD', parent_key .. ':dependencies') > 0 then
    return true
  end
  local parent_base, id = split_key(parent_key)
  if call('ZREM', parent_base .. 'waiting-children', id) == 0 then
    return true
  end
  if hard and parent_base == base then
    local deid = call('HGET', job, 'deid')
    detach(parent_key, true, nil, base)
    delete_job_keys(parent_key)
    if deid then
      call('DEL', base .. 'de:' .. deid)
    end
    return true
  end
  call('RPUSH', parent_base .. 'wait', id)
  if not queue_blocked(parent_base .. 'meta', parent_base .. 'active') then
    call('ZADD', parent_base .. 'marker', 0, '0')
  end
  if not hard then
    call('XADD', parent_base .. 'events', '*', 'event', 'waiting', 'jobId', id, 'prev', 'waiting-children')
  end
  return true
end
