-- SPDX-License-Identifier: MIT
--[[ Put an active job aside until its children are done.
     KEYS[1] active   KEYS[2] waiting-children   KEYS[3] job   KEYS[4] dependencies   KEYS[5] unsuccessful
     KEYS[6] stalled   KEYS[7] events
     ARGV[1] token   ARGV[2] full key of the one child to wait for, or empty   ARGV[3] now ms   ARGV[4] id
     ARGV[5] key base (unused)
     Returns 0, 1 nothing to wait for (the lock is not even looked at), -1 no such job, -2 no lock, -3 not active,
     -6 another's lock, -9 failed children. ]]
local call = redis.call
--- @include "unlock"
local job, id = KEYS[3], ARGV[4]
if call('EXISTS', job) == 0 then
  return -1
elseif call('EXISTS', KEYS[5]) == 1 then
  return -9
end
local pending
if ARGV[2] ~= '' then
  pending = call('SISMEMBER', KEYS[4], ARGV[2])
else
  pending = call('EXISTS', KEYS[4])
end
if pending == 0 then
  return 1
end
local refused = unlock(job .. ':lock', ARGV[1], KEYS[6], id)
if refused then
  return refused
end
if call('LREM', KEYS[1], '-1', id) == 0 then
  return -3
end
call('ZADD', KEYS[2], ARGV[3], id)
call('XADD', KEYS[7], '*', 'event', 'waiting-children', 'jobId', id, 'prev', 'active')
return 0
