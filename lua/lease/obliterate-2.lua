-- SPDX-License-Identifier: MIT
--[[ Delete the whole paused queue, a slice per call.   KEYS[1] meta   KEYS[2] queue base
     ARGV[1] `force` = active jobs too, or empty   ARGV[2] most jobs per call
     Returns 1 when there is more, 0 when nothing is left. Refuses with EMQSTATE. ]]
local call, base, budget = redis.call, KEYS[2], tonumber(ARGV[2])
--- @include "lease_lanes"
if call('HGET', KEYS[1], 'paused') ~= '1' then
  return redis.error_reply('EMQSTATE not paused')
elseif ARGV[1] ~= 'force' and call('EXISTS', base .. 'active') == 1 then
  return redis.error_reply('EMQSTATE active jobs present')
end

local PARTS = { '', ':logs', ':lock', ':dependencies', ':processed', ':failed', ':unsuccessful' }
local function delete_job(id)
  local row = base .. 'job:' .. id
  local f = call('HMGET', row, 'deid', 'parent', 'parent_queue')
  local doomed = {}
  for i, part in ipairs(PARTS) do
    doomed[i] = row .. part
  end
  if f[1] then
    doomed[#doomed + 1] = base .. 'de:' .. f[1]
  end
  call('DEL', unpack(doomed))
  -- Parents that wait for children are in no set; they are found through them.
  if f[2] and not f[3] and call('HGET', base .. 'job:' .. f[2], 'state') == 'awaiting_children' then
    return f[2]
  end
end

local function empty(key)
  for _, id in ipairs(call('ZRANGE', key, 0, budget - 1)) do
    call('ZREM', key, id)
    while id do -- a job and the parents that only it leads to
      id, budget = delete_job(id), budget - 1
    end
  end
  return budget > 0
end

local sets = { base .. 'pending', base .. 'schedule', base .. 'dead' }
for _, group in ipairs(all_lanes()) do
  sets[#sets + 1] = lane_of(group)
end
-- Last: the counts of the lanes in flight are what finds the lanes at their ceiling.
sets[#sets + 1] = base .. 'active'
for _, key in ipairs(sets) do
  if not empty(key) then
    return 1
  end
end
for _, name in ipairs(call('ZRANGE', base .. 'repeat', 0, -1)) do
  call('DEL', base .. 'repeat:' .. name)
end
local rest = {}
for _, name in ipairs({
  'metrics:completed', 'metrics:failed', 'metrics:completed:data', 'metrics:failed:data', 'gactive', 'glimit',
  'gweight', 'gturn', 'ring', 'wake', 'paused', 'repeat', 'limiter', 'flow:outbox', 'meta',
}) do
  rest[#rest + 1] = base .. name
end
call('DEL', unpack(rest))
return 0
