-- SPDX-License-Identifier: MIT
--[[
  Settles what a worker has finished in one turn of its loop, and may claim what comes next.

  KEYS[1] active

  ARGV[1] queue base   ARGV[2] 1 = publish events, 2 = if somebody listens
  ARGV[3] msgpack array of operations
  ARGV[4] how many to claim, 0 = none   ARGV[5] lease ms   ARGV[6] owner   ARGV[7] most starts per window, or empty
  ARGV[8] the window in ms, or empty

  operation   complete id token result
              retry    id token delay-ms most-attempts reason fields     scheduled, or dead at the cap
              requeue  id token fields                                   pending at once, the attempt counts
              delay    id token `at`|`in` ms costs-an-attempt fields     scheduled
              release  id token                                          pending, as if not delivered
  where `fields` is an array of further fields and values of the row.

  Returns [a word per operation: completed, scheduled, dead, pending, stale or gone; what take-4 returns, or nil].
]]
local call, base = redis.call, ARGV[1]
--- @include "lease_heard"
local loud = is_loud(ARGV[2])
--- @include "lease_once"
--- @include "lease_end"
local completed = 0

-- Most operations complete; the others are made when the first of them comes.
local function other_verbs()
  --- @include "lease_settle"
  local verbs = {}
  function verbs.retry(job, op)
    return retry(job, op[4], op[5], op[6], clock_once(), unpack(op[7]))
  end
  function verbs.requeue(job, op)
    return requeue(job, unpack(op[4]))
  end
  function verbs.delay(job, op)
    leave(job)
    local at = op[4] == 'at' and op[5] or clock_once() + op[5]
    if op[6] == 1 then
      return schedule(job, at, unpack(op[7]))
    end
    return schedule(job, at, 'budget_base', raised(job), unpack(op[7]))
  end
  function verbs.release(job)
    return requeue(job, 'budget_base', raised(job))
  end
  return verbs
end

local words, verbs = {}, nil
for i, op in ipairs(cmsgpack.unpack(ARGV[3])) do
  local job, why = held(op[2], op[3])
  if not job then
    words[i] = why
  elseif op[1] == 'complete' then
    complete(job, op[4])
    completed, words[i] = completed + 1, 'completed'
  else
    verbs = verbs or other_verbs()
    words[i] = verbs[op[1]](job, op)
  end
end
if completed > 0 then
  call('HINCRBY', base .. 'metrics:completed', 'count', completed)
end
local size = tonumber(ARGV[4])
if size > 0 then
  --- @include "lease_take"
  return { words, take_many(size, tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8]) }
end
-- Room under the ceiling of the queue: somebody may be parked for it.
if call('HEXISTS', base .. 'meta', 'concurrency') == 1 and call('EXISTS', base .. 'pending', base .. 'ring') > 0 then
  --- @include "lease_wake"
  push_wake(1)
end
return { words }
