-- SPDX-License-Identifier: MIT
--[[ Give back jobs of one group whose lease has ended.   KEYS[1] active   KEYS[2] lane
     ARGV[1] queue base   ARGV[2] group   ARGV[3] most jobs
     Returns how many. ]]
local call, base, most = redis.call, ARGV[1], math.min(tonumber(ARGV[3]), 1000)
--- @include "lease_clock"
--- @include "lease_giveback"
local ids = {}
for _, id in ipairs(call('ZRANGEBYSCORE', KEYS[1], '-inf', digits(clock()))) do
  if #ids < most and call('HGET', base .. 'job:' .. id, 'group') == ARGV[2] then
    ids[#ids + 1] = id
  end
end
return give_back(ids)
