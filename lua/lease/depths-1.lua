-- SPDX-License-Identifier: MIT
--[[ Show how full a queue is, for who watches it. Reads only.   KEYS[1] queue base   ARGV none
     Returns [pending with those in lanes, active, scheduled, dead, oldest pending id or empty, 1 when it is paused]. ]]
local call, base = redis.call, KEYS[1]
--- @include "lease_earlier"
--- @include "lease_places"
local sets, waiting, oldest = { base .. 'pending' }, 0, ''
for _, group in ipairs(all_lanes()) do
  sets[#sets + 1] = lane_of(group)
end
for _, key in ipairs(sets) do
  local first = call('ZRANGE', key, 0, 0)[1]
  if first then
    waiting = waiting + call('ZCARD', key)
    oldest = (oldest == '' or earlier(first, oldest)) and first or oldest
  end
end
return {
  waiting, call('ZCARD', base .. 'active'), call('ZCARD', base .. 'schedule'), call('ZCARD', base .. 'dead'), oldest,
  call('HEXISTS', base .. 'meta', 'paused'),
}
