-- SPDX-License-Identifier: MIT
--[[ Complete several jobs of one worker and take as many next ones: what moveToFinished does for each in turn, for those
     that need no more than that.
     KEYS[1] wait   KEYS[2] active   KEYS[3] prioritized   KEYS[4] events   KEYS[5] stalled   KEYS[6] delayed
     KEYS[7] meta   KEYS[8] pc   KEYS[9] completed   KEYS[10] metrics:completed   KEYS[11] marker
     ARGV[1] key base   ARGV[2] now ms   ARGV[3] lockDuration ms   ARGV[4] worker's name or empty
     ARGV[5] maxMetricsSize or empty   ARGV[6] msgpack flat array: id, token, returnvalue and kind of each job; no id twice.
             kind: 0 the job goes, 2 it is kept for good, 4 within limits; 1 more to take the next job under the same
             token
     ARGV[7] msgpack keepJobs {count?, age? s, limit?}, or empty where no kind is 4
     Returns [ms of the next delayed job where a take found nothing, else 0; for each job {flat hash, id} of the next one,
     0 for none, or 1: nothing of it was changed, it has to be finished by itself]. [-1] alone: that is so for all, because
     the queue has limits that each take must look at. ]]
local call = redis.call
local keys, args = KEYS, ARGV
local meta_key = keys[7]
local meta = call('HMGET', meta_key, 'paused', 'concurrency', 'max', 'opts.maxLenEvents')
if meta[2] or meta[3] then
  return { -1 }
end
local wait, active, prioritized, events, stalled, delayed = keys[1], keys[2], keys[3], keys[4], keys[5], keys[6]
local base, now, duration, worker = args[1], args[2], args[3], args[4] ~= '' and args[4]
local rows = cmsgpack.unpack(args[6])
local count = #rows / 4

-- Which of them are plain: locked by their tokens, without parent, children or deduplication id. Nothing is written yet.
local jobs, locks, looks = {}, {}, { stalled, delayed }
for n = 1, count do
  local job = base .. rows[n * 4 - 3]
  jobs[n], locks[n] = job, job .. ':lock'
  looks[n * 2 + 1], looks[n * 2 + 2] = job .. ':dependencies', job .. ':unsuccessful'
end
local others = call('EXISTS', unpack(looks))
local is_marked, is_delayed, are_children = false, false, false
if others > 0 then
  is_marked, is_delayed = call('EXISTS', stalled) == 1, call('EXISTS', delayed) == 1
  are_children = others > (is_marked and 1 or 0) + (is_delayed and 1 or 0)
end
local held = call('MGET', unpack(locks))
local answers, plain, made, place = { 0 }, {}, {}, {}
for n = 1, count do
  answers[n + 1] = 1
  if held[n] == rows[n * 4 - 2] then
    local job = jobs[n]
    local stored = call('HMGET', job, 'name', 'parentKey', 'deid', 'atm')
    local is_child = stored[2] and stored[2] ~= ''
    local has_children = are_children and call('EXISTS', job .. ':dependencies', job .. ':unsuccessful') > 0
    if stored[1] and not is_child and not stored[3] and not has_children then
      plain[#plain + 1], made[n], place[rows[n * 4 - 3]] = n, (tonumber(stored[4]) or 0) + 1, n
    end
  end
end

-- They leave `active`, where they are near the right end: one look, one cut, and what is between them is put back. Where
-- one is further off they go one by one, and one that is not there at all is none of ours.
local near = plain[1] and call('LRANGE', active, -4 * #plain, -1) or {}
local between, left, from = {}, #plain, #near
while left > 0 and from > 0 do
  local id = near[from]
  if place[id] then
    place[id], left = nil, left - 1
  else
    between[#between + 1] = id
  end
  from = from - 1
end
local finished = plain
if left == 0 and plain[1] then
  call('LTRIM', active, '0', from - #near - 1)
  local size = #between
  if size > 0 then
    for i = 1, math.floor(size / 2) do
      between[i], between[size + 1 - i] = between[size + 1 - i], between[i]
    end
    call('RPUSH', active, unpack(between))
  end
else
  finished = {}
  for i = 1, #plain do
    if call('LREM', active, '-1', rows[plain[i] * 4 - 3]) == 1 then
      finished[#finished + 1] = plain[i]
    end
  end
end
if not finished[1] then
  return answers
end

local cap = meta[4]
if not cap then
  --- @include "default_cap"
  cap = default_cap(meta_key)
end
local gone, ids, kept, wanted = {}, {}, {}, 0
local within, limited = 0, 0 -- so much of `kept` is within the limits looked at last; jobs that ask for that look
for i = 1, #finished do
  local n = finished[i]
  local job, kind, size = jobs[n], rows[n * 4], #gone
  ids[i] = rows[n * 4 - 3]
  gone[size + 1] = locks[n]
  if kind < 2 then
    gone[size + 2], gone[size + 3], gone[size + 4], gone[size + 5] = job, job .. ':logs', job .. ':processed', job .. ':failed'
  else
    kept[#kept + 1], kept[#kept + 2] = now, ids[i]
    if kind > 3 then
      within, limited = #kept, limited + 1
    end
    call('HSET', job, 'atm', made[n], 'returnvalue', rows[n * 4 - 1], 'finishedOn', now)
  end
  wanted = wanted + kind % 2
end
call('DEL', unpack(gone))
if limited > 0 then
  -- One look for all: what is among the newest of all of them was among the newest at each.
  call('ZADD', keys[9], unpack(kept, 1, within))
  --- @include "keep_within"
  keep_within(keys[9], base, cmsgpack.unpack(args[7]), now, limited, function(old)
    --- @include "detach"
    detach(old, false)
  end)
end
if kept[within + 1] then
  call('ZADD', keys[9], unpack(kept, within + 1))
end
if is_marked then
  call('SREM', stalled, unpack(ids))
end

local due, next_ids, next_one
-- The next ones, all at once, when the first of the jobs that want one has said that it is completed.
local function pop()
  next_ids, next_one = {}, 0
  local blocked = meta[1]
  due = is_delayed and call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  if due and due + 0 <= (now + 1) * 4096 - 1 then
    --- @include "promote"
    promote_due(base, wait, prioritized, events, delayed, keys[8], keys[11], blocked, tonumber(now))
    due = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  end
  if blocked then
    return
  end
  local found = call('RPOP', wait, wanted)
  while found do
    for i = 1, #found do
      if string.sub(found[i], 1, 2) ~= '0:' then
        next_ids[#next_ids + 1] = found[i]
      end
    end
    found = #next_ids < wanted and call('RPOP', wait, wanted - #next_ids)
  end
  if #next_ids < wanted then
    local more = call('ZPOPMIN', prioritized, wanted - #next_ids)
    for i = 1, #more, 2 do
      next_ids[#next_ids + 1] = more[i]
    end
    if #next_ids < wanted then
      call('DEL', keys[8])
    end
  end
  if next_ids[1] then
    call('LPUSH', active, unpack(next_ids))
    call('ZADD', keys[11], '0', '0')
  end
end

local final = #finished
for i = 1, final do
  local n = finished[i]
  local token, value = rows[n * 4 - 2], rows[n * 4 - 1]
  if i < final then
    call('XADD', events, '*', 'event', 'completed', 'jobId', ids[i], 'returnvalue', value, 'prev', 'active')
  elseif cap == '0' then
    call('XTRIM', events, 'MAXLEN', '~', cap)
    call('XADD', events, '*', 'event', 'completed', 'jobId', ids[i], 'returnvalue', value, 'prev', 'active')
  else
    -- One trim for all, where the last of them would have trimmed.
    call('XADD', events, 'MAXLEN', '~', cap + 1, '*', 'event', 'completed', 'jobId', ids[i], 'returnvalue', value,
      'prev', 'active')
  end
  answers[n + 1] = 0
  if rows[n * 4] % 2 == 1 then
    if not next_ids then
      pop()
    end
    next_one = next_one + 1
    local id = next_ids[next_one]
    if id then
      --- @include "take_job"
      answers[n + 1] = flat.err and 0 or { flat, id }
    end
  end
end
local max_points = args[5]
if max_points ~= '' then
  --- @include "metrics"
  count_metric(keys[10], keys[10] .. ':data', tonumber(max_points), tonumber(now), final)
end

if next_ids and #next_ids < wanted and due and not meta[1] then
  answers[1] = due / 4096
end
-- Only the last of them can have left nothing behind.
if rows[finished[final] * 4] % 2 == 0 then
  if call('EXISTS', wait, active, prioritized) == 0 then
    call('XADD', events, '*', 'event', 'drained')
  end
elseif not next_ids[next_one] and not due and not meta[1] and call('EXISTS', active) == 0 then
  call('XADD', events, '*', 'event', 'drained')
end
return answers
