-- SPDX-License-Identifier: MIT
--- @include "delete_keys"
-- P.evict: finished jobs beyond an age (s, at most `limit` of them for each of the `times` that it is asked) or a count go,
-- newest first. One that is still among its parent's dependencies is given to `detach` before.
local function keep_within(target, base, keep, now, times, detach)
  local function evict(ids)
    for i = 1, #ids do
      local old = base .. ids[i]
      local parent = call('HGET', old, 'parentKey')
      if parent and parent ~= '' then
        detach(old)
      end
      delete_job_keys(old)
    end
  end
  if keep.age then
    local cut, limit = now - keep.age * 1000, (keep.limit or 1000) * times
    local ids = call('ZREVRANGEBYSCORE', target, cut, '-inf', 'LIMIT', 0, limit)
    evict(ids)
    if #ids < limit then
      call('ZREMRANGEBYSCORE', target, '-inf', cut)
    else
      for from = 1, #ids, 7000 do
        call('ZREM', target, unpack(ids, from, math.min(from + 6999, #ids)))
      end
    end
  end
  local count = keep.count
  if count and count > 0 then
    local ids = call('ZREVRANGE', target, count, -1)
    if ids[1] then
      evict(ids)
      call('ZREMRANGEBYRANK', target, 0, -(count + 1))
    end
  end
end
