-- SPDX-License-Identifier: MIT
-- P.take of the job `id`, which is in `active` already: lock, event, and its hash in `flat`. Needs base, token, duration
-- (of the lock, ms), worker (or nil), events and now. The hash is read once and the two or three fields that the take
-- writes are patched into what was read, which saves a write and a read per job. A dangling id yields a ghost with just
-- these fields: it is the worker's part to see that the job has no name and not to run it.
-- A key that is no hash is no job: its id leaves `active`, and `flat.err` says so.
local job = base .. id
local flat = redis.pcall('HGETALL', job)
if flat.err then
  call('LREM', active, 1, id)
else
  if token ~= '0' then
    call('PSETEX', job .. ':lock', duration, token)
  end
  call('XADD', events, '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
  local size, ats = #flat, '1'
  local at_taken, at_started, at_worker
  for i = 1, size, 2 do
    local field = flat[i]
    if field == 'processedOn' then
      at_taken = i
    elseif field == 'ats' then
      at_started, ats = i, string.format('%.0f', (tonumber(flat[i + 1]) or 0) + 1)
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
  if worker then
    at_worker = at_worker or size + 1
    flat[at_worker], flat[at_worker + 1] = 'pb', worker
    call('HSET', job, 'processedOn', now, 'ats', ats, 'pb', worker)
  else
    call('HSET', job, 'processedOn', now, 'ats', ats)
  end
end
