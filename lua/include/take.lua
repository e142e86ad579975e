-- SPDX-License-Identifier: MIT
-- P.take, the end of fetch_next.
if max and call('INCR', limiter) == 1 then
  local length = limits and limits.duration or call('HGET', meta_key, 'duration')
  call('PEXPIRE', limiter, math.floor(math.abs(length)))
end
local token, duration, worker = opts.token, opts.lockDuration, opts.name
--- @include "take_job"
call('ZADD', marker, '0', '0')
if flat.err then -- and the marker lets the taker look again
  return { 0, 0, 0, 0 }
end
return { flat, id, 0, 0 }
