-- SPDX-License-Identifier: MIT
--[[ Finish an active job, either way, and take the next one when asked.
     KEYS[1] wait   KEYS[2] active   KEYS[3] prioritized   KEYS[4] events   KEYS[5] stalled   KEYS[6] limiter
     KEYS[7] delayed   KEYS[8] paused (unused)   KEYS[9] meta   KEYS[10] pc   KEYS[11] completed or failed
     KEYS[12] job   KEYS[13] metrics:completed or metrics:failed   KEYS[14] marker
     ARGV[1] id   ARGV[2] now ms   ARGV[3] returnvalue | failedReason   ARGV[4] its value
     ARGV[5] completed | failed   ARGV[6] 1 = take the next job   ARGV[7] key base
     ARGV[8] msgpack {token, keepJobs {count?, age? s, limit?}, attempts, maxMetricsSize or "", and for the next
             job lockDuration ms, limiter?, name?}
     ARGV[9] msgpack flat array of further fields, or empty
     Returns 0, what moveToActive returns, -1 no such job, -2 no lock, -3 not active, -4 children pending,
     -6 another's lock, -9 failed children. After -3 the lock is gone and the fields are written. ]]
local call = redis.call
--- @include "fetch_next"
local keys, args = KEYS, ARGV
local id, now, field, value, outcome, base = args[1], args[2], args[3], args[4], args[5], args[7]
local opts = cmsgpack.unpack(args[8])
local active, events, stalled, delayed, target, job = keys[2], keys[4], keys[5], keys[7], keys[11], keys[12]
local completed, lock, locked = outcome == 'completed', job .. ':lock', opts.token ~= '0'
local keep = opts.keepJobs
local keeps_job = keep.count ~= 0

local stored
if completed and not keeps_job then
  stored = call('HMGET', job, 'name', 'parentKey', 'deid')
else
  stored = call('HMGET', job, 'name', 'parentKey', 'deid', 'atm', 'defa')
end
if not stored[1] and call('EXISTS', job) == 0 then
  return -1
end
-- One look at four keys that mostly do not exist spares the commands on them: no children, nothing marked, nothing
-- delayed.
local others
if completed then
  local dependencies, unsuccessful = job .. ':dependencies', job .. ':unsuccessful'
  others = call('EXISTS', dependencies, unsuccessful, stalled, delayed)
  if others > 0 and call('EXISTS', dependencies, unsuccessful) > 0 then
    return call('EXISTS', dependencies) == 1 and -4 or -9
  end
else
  others = call('EXISTS', stalled, delayed)
end
if locked then
  -- P.unlock in two halves: the lock itself goes with the job's other keys where these go too.
  local held = call('GET', lock)
  if held ~= opts.token then
    return held and -6 or -2
  end
  if others > 0 then
    call('SREM', stalled, id)
  end
end
local fields = args[9] ~= '' and cmsgpack.unpack(args[9])
if call('LREM', active, '-1', id) == 0 then
  if locked then
    call('DEL', lock)
  end
  if fields then
    call('HSET', job, unpack(fields))
  end
  return -3
end

local parent_key, deid = stored[2], stored[3]
local has_parent = parent_key and parent_key ~= ''
local evicts = keeps_job and (keep.age or keep.count and keep.count > 0)
local related, relations
if has_parent or deid or evicts then
  -- What only jobs with parents, children or a deduplication id need. Made on demand, because making a dozen
  -- functions costs as much as a command, and most jobs have none of these.
  relations = function()
    --- @include "child_failed"
    --- @include "detach"
    --- @include "dedup_finish"
    local function settle_parent(now_ms)
      local parent_json = call('HGET', job, 'parent')
      local parent = parent_json and parent_json ~= '' and cjson.decode(parent_json)
      if not completed then
        if parent then
          child_failed(parent, job, value, now_ms)
        end
        return
      end
      local parent_base, parent_id
      if parent then
        parent_base, parent_id = parent.queueKey .. ':', parent.id
      else
        parent_base, parent_id = split_key(parent_key)
      end
      local whole = parent_base .. parent_id
      if call('SREM', whole .. ':dependencies', job) == 1 then
        call('HSET', whole .. ':processed', job, value)
        check_parent(parent_base, parent_id, now_ms)
      end
    end
    return { settle_parent = settle_parent, detach = detach, release_dedup = release_dedup, requeue = requeue_parked }
  end
end

local meta_key = keys[9]
local meta = call('HMGET', meta_key, 'paused', 'concurrency', 'max', 'opts.maxLenEvents')
local cap = meta[4]
if not cap then
  --- @include "default_cap"
  cap = default_cap(meta_key)
end
-- The stream is trimmed before this finish says anything. Where nothing else is said first, the event itself can trim
-- to one more, which comes to the same; not to a cap of 0, by which an event would take itself along.
local trim = not relations and (cap == '10000' and '10001' or cap + 1)
if not trim or cap == '0' then
  call('XTRIM', events, 'MAXLEN', '~', cap)
  trim = nil
end
if deid then
  related = relations()
  related.release_dedup(base, deid, id)
  related.requeue(base, cap, deid, now)
end
if has_parent then
  related = related or relations()
  related.settle_parent(tonumber(now))
end

local made = (tonumber(stored[4]) or 0) + 1
if keeps_job then
  if locked then
    call('DEL', lock)
  end
  call('ZADD', target, now, id)
  fields = fields or {}
  local last = #fields
  fields[last + 1], fields[last + 2] = 'atm', made
  fields[last + 3], fields[last + 4] = field, value
  fields[last + 5], fields[last + 6] = 'finishedOn', now
  call('HSET', job, unpack(fields))
  if stored[5] and not completed then
    call('HDEL', job, 'defa')
  end
  if evicts then
    --- @include "keep_within"
    keep_within(target, base, keep, now, 1, function(old)
      related = related or relations()
      related.detach(old, false)
    end)
  end
else
  if completed and not related then
    -- It has been seen above that the two others do not exist.
    call('DEL', job, job .. ':logs', job .. ':processed', job .. ':failed', locked and lock or job)
  else
    call('DEL', job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed',
      job .. ':unsuccessful', locked and lock or job)
  end
  if has_parent then
    related.detach(job, false, parent_key)
  end
end

if trim then
  call('XADD', events, 'MAXLEN', '~', trim, '*', 'event', outcome, 'jobId', id, field, value, 'prev', 'active')
else
  call('XADD', events, '*', 'event', outcome, 'jobId', id, field, value, 'prev', 'active')
end
if not completed and made >= tonumber(opts.attempts) then
  call('XADD', events, '*', 'event', 'retries-exhausted', 'jobId', id, 'attemptsMade', made)
end
local max_points = opts.maxMetricsSize
if max_points and max_points ~= '' then
  --- @include "metrics"
  count_metric(keys[13], keys[13] .. ':data', tonumber(max_points), tonumber(now), 1)
end

-- `drained` needs all three empty. A fetch that found nothing has seen two of them.
local wait, prioritized = keys[1], keys[3]
if args[6] == '1' then
  local found = fetch_next(base, wait, active, prioritized, events, keys[6], delayed, keys[10], keys[14], meta_key, meta,
    now, opts, others == 0 and not related)
  if found then
    return found
  end
  if call('EXISTS', active) == 0 then
    call('XADD', events, '*', 'event', 'drained')
  end
elseif call('EXISTS', wait, active, prioritized) == 0 then
  call('XADD', events, '*', 'event', 'drained')
end
return 0
