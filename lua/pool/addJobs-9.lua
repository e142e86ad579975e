-- SPDX-License-Identifier: MIT
--[[ Add many plain jobs that may run at once: no id of their own, no delay, priority, parent or deduplication. It
     leaves what so many calls of addStandardJob leave; counter, meta, list and marker are touched once for all.
     KEYS[1] wait   KEYS[2] paused (unused)   KEYS[3] meta   KEYS[4] id   KEYS[5] completed (unused)
     KEYS[6] delayed (unused)   KEYS[7] active   KEYS[8] events   KEYS[9] marker
     ARGV[1] key base   ARGV[2] msgpack array of maps of options
     ARGV[3] msgpack flat array: for each job name, timestamp ms, which of the options (1, 2, …)
     ARGV[4…] data JSON of each job
     Returns the number of the first id; the others follow it. ]]
local call = redis.call
--- @include "blocked"
--- @include "default_cap"
local base, options, jobs, meta_key, events = ARGV[1], cmsgpack.unpack(ARGV[2]), cmsgpack.unpack(ARGV[3]), KEYS[3], KEYS[8]
local meta = call('HMGET', meta_key, 'paused', 'concurrency', 'opts.maxLenEvents')
local cap = meta[3] or default_cap(meta_key)
local count = #ARGV - 3
local first = call('INCRBY', KEYS[4], count) - count + 1

local json, at_end, at_front = {}, {}, {}
for i = 1, #options do
  json[i] = cjson.encode(options[i])
end
for i = 1, count do
  local name, timestamp, which = jobs[3 * i - 2], jobs[3 * i - 1], jobs[3 * i]
  local id = string.format('%.0f', first + i - 1)
  call('HSET', base .. id, 'name', name, 'data', ARGV[i + 3], 'opts', json[which], 'timestamp', timestamp,
    'delay', '0', 'priority', '0')
  call('XADD', events, '*', 'event', 'added', 'jobId', id, 'name', name)
  call('XADD', events, 'MAXLEN', '~', cap, '*', 'event', 'waiting', 'jobId', id)
  local ids = options[which].lifo and at_front or at_end
  ids[#ids + 1] = id
end
if at_end[1] then
  call('LPUSH', KEYS[1], unpack(at_end))
end
if at_front[1] then
  call('RPUSH', KEYS[1], unpack(at_front))
end
if not is_blocked(meta[1], meta[2], KEYS[7]) then
  call('ZADD', KEYS[9], '0', '0')
end
return first
