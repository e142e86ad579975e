-- SPDX-License-Identifier: MIT
-- P.store: writes the hash of a new job and says so. The common fields go in one write; a parent, a scheduler
-- or a deduplication id are rarer and cost a second one.
local function store_job(job, events, id, name, data, opts, timestamp, parent_key, parent, scheduler)
  local delay, priority = opts.delay or 0, opts.priority or 0
  call('HSET', job, 'name', name, 'data', data, 'opts', cjson.encode(opts), 'timestamp', timestamp,
    'delay', delay, 'priority', priority)
  local deid = opts.de and opts.de.id
  if parent_key then
    call('HSET', job, 'parentKey', parent_key, 'parent', parent)
  end
  if scheduler then
    call('HSET', job, 'rjk', scheduler)
  end
  if deid then
    call('HSET', job, 'deid', deid)
  end
  call('XADD', events, '*', 'event', 'added', 'jobId', id, 'name', name)
  return tonumber(delay), tonumber(priority)
end
