-- SPDX-License-Identifier: MIT
--[[ Move the due time of a scheduled job, or make it ready now.   KEYS[1] row   KEYS[2] schedule
     ARGV[1] id   ARGV[2] ms from now, or empty = ready now   ARGV[3] queue base
     Returns 1, or -1 when there is no such job. Refuses with EMQSTATE. ]]
local call, base = redis.call, ARGV[3]
--- @include "lease_clock"
--- @include "lease_due"
--- @include "lease_ready"
local f = call('HMGET', KEYS[1], 'attempts', 'group')
if not f[1] then
  return -1
elseif not call('ZSCORE', KEYS[2], ARGV[1]) then
  return redis.error_reply('EMQSTATE it is not delayed')
elseif ARGV[2] ~= '' then
  local due = digits(clock() + tonumber(ARGV[2]))
  call('ZADD', KEYS[2], 'XX', due, ARGV[1])
  announce_job(ARGV[1], due)
  return 1
end
call('ZREM', KEYS[2], ARGV[1])
call('HSET', KEYS[1], 'state', 'pending')
put_ready(ARGV[1], f[2])
return 1
