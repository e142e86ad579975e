-- SPDX-License-Identifier: MIT
--- @include "parent_release"
-- The parent is to fail with its child. Where it waits it is released with the reason in `defa`, so that the
-- next worker fails it; where it runs or has run it only gets the reason, unless it has failed already.
local function fail_parent(base, id, child, now)
  local job = base .. id
  call('ZADD', job .. ':unsuccessful', now, child)
  if call('EXISTS', job) == 0 then
    return
  end
  local reason = 'child ' .. child .. ' failed'
  if call('ZREM', base .. 'waiting-children', id) == 0 then
    if call('ZREM', base .. 'delayed', id) == 0 then
      if not call('ZSCORE', base .. 'failed', id) then
        call('HSET', job, 'defa', reason)
      end
      return
    end
    call('HSET', job, 'delay', 0)
  end
  call('HSET', job, 'defa', reason)
  release_parent(base, id, now)
end

-- P.child-failed: what a failed child means for its parent, by the one option it carries.
local function child_failed(parent, child, reason, now)
  if not (parent.fpof or parent.cpof or parent.idof or parent.rdof) then
    return
  end
  local base, id = parent.queueKey .. ':', parent.id
  local job = base .. id
  if call('SREM', job .. ':dependencies', child) == 0 then
    return
  end
  if parent.fpof then
    fail_parent(base, id, child, now)
  elseif parent.cpof then
    call('HSET', job .. ':failed', child, reason)
    release_waiting_parent(base, id, now)
  else
    check_parent(base, id, now)
    if parent.idof then
      call('HSET', job .. ':failed', child, reason)
    end
  end
end
