-- SPDX-License-Identifier: MIT
--[[ The sweep: recover what was marked and has no lock, then mark what is active now. Once per interval and queue.
     KEYS[1] stalled   KEYS[2] wait   KEYS[3] active   KEYS[4] stalled-check   KEYS[5] meta   KEYS[6] paused (unused)
     KEYS[7] marker   KEYS[8] events
     ARGV[1] stalls allowed   ARGV[2] key base   ARGV[3] now ms   ARGV[4] interval ms
     Returns the recovered ids.
     Newer clients name `repeat` as a ninth key. It is derived from the key base here, so their calls work alike. ]]
local call = redis.call
--- @include "blocked"
--- @include "default_cap"
local stalled, wait, active, meta_key, events = KEYS[1], KEYS[2], KEYS[3], KEYS[5], KEYS[8]
local allowed, base = tonumber(ARGV[1]), ARGV[2]
if not call('SET', KEYS[4], ARGV[3], 'PX', ARGV[4], 'NX') then
  return {}
end
local meta = call('HMGET', meta_key, 'paused', 'concurrency', 'opts.maxLenEvents')
call('XTRIM', events, 'MAXLEN', '~', meta[3] or default_cap(meta_key))

--- @include "take_out"

-- Marked ids without a lock, and ids of ancient markers, which are no jobs.
local function without_lock(marked)
  local lockless = {}
  for from = 1, #marked, 5000 do
    local to = math.min(from + 4999, #marked)
    local locks = {}
    for i = from, to do
      locks[#locks + 1] = base .. marked[i] .. ':lock'
    end
    local held = call('MGET', unpack(locks))
    for i = from, to do
      if not held[i - from + 1] or string.sub(marked[i], 1, 2) == '0:' then
        lockless[#lockless + 1] = marked[i]
      end
    end
  end
  return lockless
end

-- A job of a living scheduler is exempt from the limit: failing it would not stop the series.
local function of_scheduler(job)
  local scheduler = call('HGET', job, 'rjk')
  return scheduler
    and (call('EXISTS', base .. 'repeat:' .. scheduler) == 1 or call('ZSCORE', base .. 'repeat', scheduler))
end

-- A marker is none, nor is a key that is no hash: the others must not be lost with it. A hash that is gone is the
-- taker's to fail.
local function is_job(id)
  if string.sub(id, 1, 2) == '0:' then
    return false
  end
  local kind = call('TYPE', base .. id).ok
  return kind == 'hash' or kind == 'none'
end

local function recover(ids)
  for i = 1, #ids do
    local id = ids[i]
    local job = base .. id
    if call('HINCRBY', job, 'stc', 1) > allowed and not of_scheduler(job) then
      call('HSET', job, 'defa', 'job stalled more than allowable limit')
    end
    call('XADD', events, '*', 'event', 'waiting', 'jobId', id, 'prev', 'active')
    call('XADD', events, '*', 'event', 'stalled', 'jobId', id)
  end
  each_batch(ids, function(...)
    call('RPUSH', wait, ...)
  end)
  -- Once at the end: `active` only shrinks in here, so the queue is least full now.
  if ids[1] and not is_blocked(meta[1], meta[2], active) then
    call('ZADD', KEYS[7], '0', '0')
  end
end

local recovered = {}
local marked = call('SMEMBERS', stalled)
if marked[1] then
  call('DEL', stalled)
  local removed = take_out(active, without_lock(marked))
  for i = 1, #removed do
    if is_job(removed[i]) then
      recovered[#recovered + 1] = removed[i]
    end
  end
  recover(recovered)
end
each_batch(call('LRANGE', active, 0, -1), function(...)
  call('SADD', stalled, ...)
end)
return recovered
