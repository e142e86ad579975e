-- SPDX-License-Identifier: MIT
--[[ Say where a job is.   KEYS[1] queue base   ARGV[1] id
     Returns pending, active, scheduled, dead, awaiting_children, unknown (a row in no set) or absent. ]]
local call, base, id = redis.call, KEYS[1], ARGV[1]
local f = call('HMGET', base .. 'job:' .. id, 'attempts', 'state', 'group')
local lane = f[3] and base .. 'g:' .. f[3] .. ':pending'
if call('ZSCORE', base .. 'pending', id) or (lane and call('ZSCORE', lane, id)) then
  return 'pending'
elseif call('ZSCORE', base .. 'active', id) then
  return 'active'
elseif call('ZSCORE', base .. 'schedule', id) then
  return 'scheduled'
elseif call('ZSCORE', base .. 'dead', id) then
  return 'dead'
elseif f[2] == 'awaiting_children' then
  return 'awaiting_children'
end
return f[1] and 'unknown' or 'absent'
