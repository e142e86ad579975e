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
--- @include "default_cap"
--- @include "delete_keys"
--- @include "each_batch"
--- @include "fetch_next"
local id, now, field, value, outcome, base = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[7]
local opts = cmsgpack.unpack(ARGV[8])
local active, events, target, job, stalled = KEYS[2], KEYS[4], KEYS[11], KEYS[12], KEYS[5]
local completed = outcome == 'completed'
local now_ms, lock = tonumber(now), job .. ':lock'

-- What only jobs with parents, children or a deduplication id need. Made on demand, because making a dozen
-- functions costs as much as a command, and most jobs have none of these.
local function relations()
  --- @include "child_failed"
  --- @include "detach"
  --- @include "dedup_finish"
  local function settle_parent(parent_key, parent_json)
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
local related

-- Old finished jobs go, newest first. One that is still among its parent's dependencies leaves these, too.
local function evict(ids)
  for i = 1, #ids do
    local old = base .. ids[i]
    local parent_key = call('HGET', old, 'parentKey')
    if parent_key and parent_key ~= '' then
      related = related or relations()
      related.detach(old, false)
    end
    delete_job_keys(old)
  end
end

local function evict_by_age(age, limit)
  local cut = now_ms - age * 1000
  local ids = call('ZREVRANGEBYSCORE', target, cut, '-inf', 'LIMIT', 0, limit)
  if not ids[1] then
    return
  end
  evict(ids)
  if #ids < limit then
    call('ZREMRANGEBYSCORE', target, '-inf', cut)
  else
    each_batch(ids, function(...)
      call('ZREM', target, ...)
    end)
  end
end

local stored = call('HMGET', job, 'name', 'parentKey', 'parent', 'deid', 'atm', 'defa')
if not stored[1] and call('EXISTS', job) == 0 then
  return -1
end
if completed and call('EXISTS', job .. ':dependencies', job .. ':unsuccessful') > 0 then
  return call('EXISTS', job .. ':dependencies') == 1 and -4 or -9
end
local locked = opts.token ~= '0'
if locked then
  -- P.unlock in two halves: the lock itself goes with the job's other keys where these go too.
  local held = call('GET', lock)
  if held ~= opts.token then
    return held and -6 or -2
  end
  call('SREM', stalled, id)
end
local keep = opts.keepJobs
local keeps_job = keep.count ~= 0
local fields = ARGV[9] ~= '' and cmsgpack.unpack(ARGV[9]) or {}
if call('LREM', active, '-1', id) == 0 then
  if locked then
    call('DEL', lock)
  end
  if fields[1] then
    call('HSET', job, unpack(fields))
  end
  return -3
end

local meta_key = KEYS[9]
local meta = call('HMGET', meta_key, 'paused', 'concurrency', 'max', 'duration', 'opts.maxLenEvents')
local cap = meta[5] or default_cap(meta_key)
call('XTRIM', events, 'MAXLEN', '~', cap)
local parent_key, parent_json, deid = stored[2], stored[3], stored[4]
if deid then
  related = related or relations()
  related.release_dedup(base, deid, id)
  related.requeue(base, cap, deid, now)
end
if parent_key and parent_key ~= '' then
  related = related or relations()
  related.settle_parent(parent_key, parent_json)
end

local made = (stored[5] or 0) + 1
if keeps_job then
  if locked then
    call('DEL', lock)
  end
  call('ZADD', target, now, id)
  local last = #fields
  fields[last + 1], fields[last + 2] = 'atm', made
  fields[last + 3], fields[last + 4] = field, value
  fields[last + 5], fields[last + 6] = 'finishedOn', now
  call('HSET', job, unpack(fields))
  if stored[6] and not completed then
    call('HDEL', job, 'defa')
  end
  if keep.age then
    evict_by_age(keep.age, keep.limit or 1000)
  end
  local count = keep.count
  if count and count > 0 then
    local ids = call('ZREVRANGE', target, count, -1)
    if ids[1] then
      evict(ids)
      call('ZREMRANGEBYRANK', target, 0, -(count + 1))
    end
  end
else
  if locked then
    delete_job_keys(job, lock)
  else
    delete_job_keys(job)
  end
  if parent_key and parent_key ~= '' then
    related.detach(job, false, parent_key)
  end
end

call('XADD', events, '*', 'event', outcome, 'jobId', id, field, value, 'prev', 'active')
if not completed and made >= tonumber(opts.attempts) then
  call('XADD', events, '*', 'event', 'retries-exhausted', 'jobId', id, 'attemptsMade', made)
end
local max_points = opts.maxMetricsSize
if max_points and max_points ~= '' then
  --- @include "metrics"
  count_metric(KEYS[13], KEYS[13] .. ':data', tonumber(max_points), now_ms)
end

-- `drained` needs all three empty. A fetch that found nothing has seen two of them.
local wait, prioritized = KEYS[1], KEYS[3]
if ARGV[6] == '1' then
  local found = fetch_next(base, wait, active, prioritized, events, KEYS[6], KEYS[7], KEYS[10], KEYS[14], meta, now, opts)
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
