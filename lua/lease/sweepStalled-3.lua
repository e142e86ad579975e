-- SPDX-License-Identifier: MIT
--[[ Give back jobs whose lease has ended, counting; those that were given back too often are dead with `stalled`.
     KEYS[1] active   KEYS[2] pending   KEYS[3] dead
     ARGV[1] queue base   ARGV[2] lapses that are forgiven   ARGV[3] most jobs
     ARGV[4] 1 = strict, one lapse less is forgiven   ARGV[5] 1 = publish events
     Returns [recovered ids, dead ids]. ]]
local call, base, loud = redis.call, ARGV[1], ARGV[5] == '1'
--- @include "lease_clock"
--- @include "lease_stall"
local allowed, recovered, dead = tonumber(ARGV[2]) - (ARGV[4] == '1' and 1 or 0), {}, {}
local most = math.min(tonumber(ARGV[3]), 1000)
for _, id in ipairs(call('ZRANGEBYSCORE', KEYS[1], '-inf', digits(clock()), 'LIMIT', 0, most)) do
  local where = stall(id, allowed)
  if where == 'pending' then
    recovered[#recovered + 1] = id
  elseif where == 'dead' then
    dead[#dead + 1] = id
  end
end
return { recovered, dead }
