-- SPDX-License-Identifier: MIT
--[[ Remove all jobs that wait, except the current runs of schedulers.
     KEYS[1] wait   KEYS[2] paused   KEYS[3] delayed   KEYS[4] prioritized   KEYS[5] repeat
     ARGV[1] key base   ARGV[2] 1 = delayed jobs, too
     Returns nothing.
     A list loses as many ids at its head as there were jobs removed. A run that is spared there may so lose its
     place to the id of a removed job: BullMQ does the same. ]]
local call = redis.call
--- @include "each_batch"
--- @include "remove_hard"
local base, spared = ARGV[1], {}
local slots = call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES')
for i = 1, #slots, 2 do
  spared['repeat:' .. slots[i] .. ':' .. slots[i + 1]] = true
end

local function remove_all(ids)
  local removed = {}
  for i = 1, #ids do
    if not spared[ids[i]] then
      remove_hard(base, ids[i])
      removed[#removed + 1] = ids[i]
    end
  end
  return removed
end

local function drain_list(key)
  local removed = remove_all(call('LRANGE', key, 0, -1))
  call('LTRIM', key, #removed, -1)
end

local function drain_set(key)
  each_batch(remove_all(call('ZRANGE', key, 0, -1)), function(...)
    call('ZREM', key, ...)
  end)
end

drain_list(KEYS[1])
drain_list(KEYS[2])
if ARGV[2] == '1' then
  drain_set(KEYS[3])
end
drain_set(KEYS[4])
