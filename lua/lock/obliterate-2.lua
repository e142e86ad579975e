-- SPDX-License-Identifier: MIT
--[[ Remove a paused queue, a slice per call.   KEYS[1] meta   KEYS[2] key base
     ARGV[1] how many jobs at most   ARGV[2] not empty = active jobs, too
     Returns 0 when all is gone, 1 when there is more (call again), -1 not paused, -2 jobs are active. ]]
local call = redis.call
--- @include "each_batch"
--- @include "remove_hard"
local base, budget = KEYS[2], tonumber(ARGV[1])
if call('HEXISTS', KEYS[1], 'paused') == 0 then
  return -1
elseif call('EXISTS', base .. 'active') == 1 and ARGV[2] == '' then
  return -2
end

local function remove_all(ids)
  for i = 1, #ids do
    remove_hard(base, ids[i])
  end
  budget = budget - #ids
end

local function empty_list(state)
  local ids = call('LRANGE', base .. state, 0, budget - 1)
  if state == 'active' then
    for i = 1, #ids do
      call('DEL', base .. ids[i] .. ':lock')
    end
  end
  remove_all(ids)
  call('LTRIM', base .. state, #ids, -1)
end

local function empty_set(state)
  local ids = call('ZRANGE', base .. state, 0, budget - 1)
  remove_all(ids)
  each_batch(ids, function(...)
    call('ZREM', base .. state, ...)
  end)
end

local function remove_schedulers()
  local ids = call('ZRANGE', base .. 'repeat', 0, budget - 1)
  for i = 1, #ids do
    call('DEL', base .. 'repeat:' .. ids[i])
  end
  each_batch(ids, function(...)
    call('ZREM', base .. 'repeat', ...)
  end)
  budget = budget - #ids
end

local steps = {
  { empty_list, 'active' }, { empty_set, 'delayed' }, { remove_schedulers }, { empty_set, 'completed' },
  { empty_list, 'wait' }, { empty_list, 'paused' }, { empty_set, 'prioritized' }, { empty_set, 'failed' },
}
for _, step in ipairs(steps) do
  step[1](step[2])
  if budget <= 0 then
    return 1
  end
end
call('DEL', base .. 'events', base .. 'delay', base .. 'stalled-check', base .. 'stalled', base .. 'id', base .. 'pc',
  base .. 'marker', base .. 'meta', base .. 'metrics:completed', base .. 'metrics:completed:data',
  base .. 'metrics:failed', base .. 'metrics:failed:data')
return 0
