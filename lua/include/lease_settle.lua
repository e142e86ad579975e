-- SPDX-License-Identifier: MIT
-- What the holder of a job may do with it, besides completing it. Each answers the state the job is in afterwards.
--- @include "lease_due"
--- @include "lease_end"
local function schedule(job, at, ...)
  call('HSET', job.row, 'state', 'scheduled', 'spent', job.attempts, ...)
  call('DEL', job.row .. ':lock')
  call('ZADD', base .. 'schedule', digits(at), job.id)
  announce_job(job.id, digits(at))
  tell('scheduled', job.id)
  return 'scheduled'
end

local function retry(job, delay, most, reason, now, ...)
  leave(job)
  if job.attempts - job.budget_base >= most then
    bury(job, reason, 'spent', job.attempts, ...)
    return 'dead'
  end
  return schedule(job, now + delay, 'last_error', reason, ...)
end

local function requeue(job, ...)
  leave(job)
  call('HSET', job.row, 'state', 'pending', 'spent', job.attempts, ...)
  call('DEL', job.row .. ':lock')
  --- @include "lease_ready"
  put_ready(job.id, job.group)
  tell('waiting', job.id)
  return 'pending'
end

-- As if this delivery had not been: the budget it took from the retries is given back.
local function raised(job)
  return digits(job.budget_base + 1)
end
