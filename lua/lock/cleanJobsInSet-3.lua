-- SPDX-License-Identifier: MIT
--[[ Remove old jobs of one state.   KEYS[1] the list or sorted set   KEYS[2] events   KEYS[3] repeat
     ARGV[1] key base   ARGV[2] ms: what is younger stays   ARGV[3] how many to look at, 0 = all
     ARGV[4] wait | paused | active | delayed | prioritized | completed | failed
     Returns the ids removed. Current runs of schedulers stay, and active jobs with a lock. ]]
local call = redis.call
--- @include "each_batch"
--- @include "remove_hard"
--- @include "scheduler_owned"
local key, base, cut, limit, state = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local removed = {}

-- The moment that counts is the first of these fields that the job has; without any it is as old as can be.
local function is_old(id, ...)
  local stored = call('HMGET', base .. id, 'rjk', ...)
  if scheduler_owned(KEYS[3], id, stored[1]) then
    return false
  end
  for i = 2, #stored do
    if stored[i] then
      return tonumber(stored[i]) <= cut
    end
  end
  return true
end

local function remove(id)
  remove_hard(base, id)
  removed[#removed + 1] = id
end

-- Each is blanked where it stands, and the blanks go together: a search for each would be quadratic.
local function clean_list()
  local ids = call('LRANGE', key, limit > 0 and -limit or 0, -1)
  for i = 1, #ids do
    local id = ids[i]
    if (state ~= 'active' or call('EXISTS', base .. id .. ':lock') == 0)
      and is_old(id, 'finishedOn', 'processedOn', 'timestamp') then
      call('LSET', key, i - 1 - #ids, '')
      remove(id)
    end
  end
  if removed[1] then
    call('LREM', key, 0, '')
  end
end

local function clean_set()
  local ids
  if state == 'completed' or state == 'failed' then
    ids = call('ZRANGEBYSCORE', key, '-inf', cut, 'LIMIT', 0, limit > 0 and limit or -1)
  else
    ids = call('ZRANGE', key, 0, limit - 1)
  end
  for i = 1, #ids do
    local id = ids[i]
    if state == 'delayed' then
      if is_old(id, 'processedOn', 'timestamp') then
        remove(id)
      end
    elseif state ~= 'prioritized' or is_old(id, 'timestamp') then
      remove(id)
    end
  end
  each_batch(removed, function(...)
    call('ZREM', key, ...)
  end)
end

if state == 'wait' or state == 'paused' or state == 'active' then
  clean_list()
else
  clean_set()
end
call('XADD', KEYS[2], '*', 'event', 'cleaned', 'count', #removed)
return removed
