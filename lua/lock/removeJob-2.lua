-- SPDX-License-Identifier: MIT
--[[ Remove a job, on request with all its children.   KEYS[1] job   KEYS[2] repeat
     ARGV[1] id   ARGV[2] 1 = with its children   ARGV[3] key base
     Returns 1 (also when there is no such job), 0 when it or a child still to come is locked, -8 when it is the
     current run of a scheduler. ]]
local call = redis.call
--- @include "remove_tree"
--- @include "scheduler_owned"
local children = ARGV[2] == '1'

local function is_locked(key)
  if call('EXISTS', key .. ':lock') == 1 then
    return true
  end
  for _, child in ipairs(children and call('SMEMBERS', key .. ':dependencies') or {}) do
    if is_locked(child) then
      return true
    end
  end
  return false
end

if scheduler_owned(KEYS[2], ARGV[1], call('HGET', KEYS[1], 'rjk')) then
  return -8
elseif is_locked(KEYS[1]) then
  return 0
end
remove_tree(ARGV[3], ARGV[1], nil, { children = children })
return 1
