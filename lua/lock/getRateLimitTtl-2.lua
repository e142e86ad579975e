-- SPDX-License-Identifier: MIT
--[[ How long no job may be taken.   KEYS[1] limiter   KEYS[2] meta
     ARGV[1] the worker's own max, or 0
     Returns ms; without any max the plain time to live of the counter (-2 no counter, -1 one without end). ]]
local call = redis.call
--- @include "rate_ttl"
local max = ARGV[1]
if max == '0' then
  max = call('HGET', KEYS[2], 'max')
end
if max then
  return max == '' and 0 or rate_ttl(KEYS[1], max)
end
return call('PTTL', KEYS[1])
