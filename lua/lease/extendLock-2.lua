-- SPDX-License-Identifier: MIT
--[[ Move the deadline of a held job, if it is still in active.   KEYS[1] active   KEYS[2] row
     ARGV[1] id   ARGV[2] token   ARGV[3] lease ms
     Returns 1, or -1 when there is no such row. Refuses with EMQSTALE, also when the job has left active. ]]
local call = redis.call
--- @include "lease_clock"
local attempts = call('HGET', KEYS[2], 'attempts')
if not attempts then
  return -1
end
if attempts ~= ARGV[2] then
  return redis.error_reply('EMQSTALE the token no longer holds the job')
end
if not call('ZSCORE', KEYS[1], ARGV[1]) then
  return redis.error_reply('EMQSTALE the lease has ended and the job was taken back')
end
call('ZADD', KEYS[1], 'XX', digits(clock() + ARGV[3]), ARGV[1])
return 1
