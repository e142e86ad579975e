-- SPDX-License-Identifier: MIT
-- P.take, the end of fetch_next. The hash is read once and the two or three fields that the take writes are patched into
-- what was read, which saves a write and a read per job. A dangling id yields a ghost with just these fields: it is the
-- worker's part to see that the job has no name and not to run it.
local job = base .. id
if max and call('INCR', limiter) == 1 then
  local duration = limits and limits.duration or call('HGET', meta_key, 'duration')
  call('PEXPIRE', limiter, math.floor(math.abs(duration)))
end
if opts.token ~= '0' then
  call('PSETEX', job .. ':lock', opts.lockDuration, opts.token)
end
call('XADD', events, '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
local flat = call('HGETALL', job)
local size, ats = #flat, '1'
local at_taken, at_started, at_worker
for i = 1, size, 2 do
  local field = flat[i]
  if field == 'processedOn' then
    at_taken = i
  elseif field == 'ats' then
    at_started, ats = i, string.format('%.0f', flat[i + 1] + 1)
  elseif field == 'pb' then
    at_worker = i
  end
end
if not at_taken then
  at_taken, size = size + 1, size + 2
end
if not at_started then
  at_started, size = size + 1, size + 2
end
flat[at_taken], flat[at_taken + 1] = 'processedOn', now
flat[at_started], flat[at_started + 1] = 'ats', ats
local worker = opts.name
if worker then
  at_worker = at_worker or size + 1
  flat[at_worker], flat[at_worker + 1] = 'pb', worker
  call('HSET', job, 'processedOn', now, 'ats', ats, 'pb', worker)
else
  call('HSET', job, 'processedOn', now, 'ats', ats)
end
call('ZADD', marker, '0', '0')
return { flat, id, 0, 0 }
