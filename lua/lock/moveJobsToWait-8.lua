-- SPDX-License-Identifier: MIT
--[[ Send many jobs of one state to `wait`. Priorities, parents and the field `delay` are left alone.
     KEYS[1] key base   KEYS[2] events   KEYS[3] failed | completed | delayed   KEYS[4] wait   KEYS[5] paused (unused)
     KEYS[6] meta   KEYS[7] active   KEYS[8] marker
     ARGV[1] how many   ARGV[2] largest score   ARGV[3] failed | completed | delayed
     Returns 1 when there may be more (call again), else 0. ]]
local call = redis.call
--- @include "default_cap"
--- @include "each_batch"
--- @include "push_plain"
local base, events, from, wait, meta_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6]
local count, state = tonumber(ARGV[1]) or 1000, ARGV[3]
local result = ({ failed = 'failedReason', completed = 'returnvalue' })[state]
local ids = call('ZRANGEBYSCORE', from, 0, ARGV[2], 'LIMIT', 0, count)
if not ids[1] then
  return 0
end
local cap = call('HGET', meta_key, 'opts.maxLenEvents') or default_cap(meta_key)
for i = 1, #ids do
  if result then
    call('HDEL', base .. ids[i], 'finishedOn', 'processedOn', result)
  end
  call('XADD', events, 'MAXLEN', '~', cap, '*', 'event', 'waiting', 'jobId', ids[i], 'prev', state)
end
each_batch(ids, function(...)
  call('ZREM', from, ...)
  call('LPUSH', wait, ...)
end)
wake(meta_key, KEYS[7], KEYS[8])
return #ids >= count and 1 or 0
