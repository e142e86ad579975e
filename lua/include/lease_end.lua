-- SPDX-License-Identifier: MIT
-- The two ends of a job: its row goes, or it lies in the morgue.
--- @include "lease_job"
--- @include "lease_leave"
--- @include "lease_tell"

-- Few jobs have a parent, and what deals with one is made when it is needed.
local function family()
  --- @include "lease_flow"
  return tell_parent_done, tell_parent_dead
end

local function free_dedup(job)
  if job.deid and call('GET', base .. 'de:' .. job.deid) == job.id then
    call('DEL', base .. 'de:' .. job.deid)
  end
end

local function delete_row(job)
  local row = job.row
  free_dedup(job)
  if job.flow then
    call(
      'DEL', row, row .. ':logs', row .. ':lock', row .. ':dependencies', row .. ':processed', row .. ':failed',
      row .. ':unsuccessful'
    )
  else
    call('DEL', row, row .. ':logs', row .. ':lock')
  end
end

-- A child that is taken away by an operator keeps nobody waiting.
local function remove_row(job)
  if job.parent then
    local _, tell_dead = family()
    tell_dead(job, 'id', 'removed')
  end
  delete_row(job)
end

local function complete(job, result)
  leave(job)
  if job.parent then
    family()(job, result or job.id)
  end
  delete_row(job)
  tell('completed', job.id, 'result', result)
end

-- The caller has taken it out of active. Fields after the reason are written with it.
local function bury(job, reason, ...)
  call('HSET', job.row, 'state', 'dead', 'last_error', reason, ...)
  call('DEL', job.row .. ':lock')
  call('ZADD', base .. 'dead', '0', job.id)
  call('HINCRBY', base .. 'metrics:failed', 'count', '1')
  free_dedup(job)
  if job.parent then
    local _, tell_dead = family()
    tell_dead(job, job.policy or 'fp', reason)
  end
  tell('failed', job.id, 'reason', reason)
end
