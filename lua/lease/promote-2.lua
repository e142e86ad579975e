-- SPDX-License-Identifier: MIT
--[[ Move due jobs to where they are taken from, oldest due first.   KEYS[1] schedule   KEYS[2] pending
     ARGV[1] queue base   ARGV[2] most jobs   ARGV[3] 1 = also those that are not due yet; may be left out
     Returns how many. ]]
local call, base = redis.call, ARGV[1]
--- @include "lease_clock"
--- @include "lease_ready"
local until_ms, most = ARGV[3] == '1' and '+inf' or digits(clock()), math.min(tonumber(ARGV[2]), 1000)
local ids = call('ZRANGEBYSCORE', KEYS[1], '-inf', until_ms, 'LIMIT', 0, most)
if not ids[1] then
  return 0
end
call('ZREM', KEYS[1], unpack(ids))
local flat, count = {}, 0
for _, id in ipairs(ids) do
  local row = base .. 'job:' .. id
  local f = call('HMGET', row, 'attempts', 'group')
  if f[1] then
    count = count + 1
    call('HSET', row, 'state', 'pending')
    if f[2] then
      put_ready(id, f[2])
    else
      flat[#flat + 1], flat[#flat + 2] = '0', id
    end
  end
end
if flat[1] then
  call('ZADD', KEYS[2], unpack(flat))
  push_wake(1)
end
return count
