-- SPDX-License-Identifier: MIT
--[[ Part a child from its parent, which waits for it no longer.   KEYS[1] key base
     ARGV[1] child's key   ARGV[2] parent's key
     Returns 0, 1 it was no pending child of that parent, -1 no such job, -5 no such parent. ]]
local call = redis.call
--- @include "detach"
local child, parent = ARGV[1], ARGV[2]
if call('EXISTS', child) == 0 then
  return -1
elseif call('EXISTS', parent) == 0 then
  return -5
elseif not detach(child, false, parent) then
  return 1
end
call('HDEL', child, 'parentKey', 'parent')
return 0
