-- SPDX-License-Identifier: MIT
--- @include "split_key"
--- @include "parent_release"
-- P.dup: the custom id is taken. A job without a parent, or of the same one, may be adopted by the caller's.
local function add_duplicate()
  local known = call('HGET', job, 'parentKey')
  if not known or known == parent_key then
    if parent_key then
      if call('ZSCORE', completed_key, id) then
        call('HSET', parent_key .. ':processed', job, call('HGET', job, 'returnvalue') or '')
        local parent_base, parent_id = split_key(parent_key)
        check_parent(parent_base, parent_id, tonumber(timestamp))
      else
        call('SADD', parent_key .. ':dependencies', job)
      end
      call('HSET', job, 'parentKey', parent_key, 'parent', parent)
    end
  elseif parent_key and call('EXISTS', known) == 1 then
    return -7
  end
  call('XADD', events, 'MAXLEN', '~', cap, '*', 'event', 'duplicated', 'jobId', id)
  return id
end
