-- SPDX-License-Identifier: MIT
--[[ Add a job that may run at once.
     KEYS[1] wait   KEYS[2] paused (unused)   KEYS[3] meta   KEYS[4] id   KEYS[5] completed   KEYS[6] delayed
     KEYS[7] active   KEYS[8] events   KEYS[9] marker
     ARGV[1] msgpack array {key base, custom id or "", name, timestamp ms, parent key?, parent's dependencies key?,
             parent map?, scheduler id?, deduplication key?}
     ARGV[2] data JSON   ARGV[3] msgpack map of options
     Returns the id, new or existing; -5 no such parent; -7 the job belongs to another parent. ]]
local call = redis.call
local counter_key, meta_key, completed_key, events = KEYS[4], KEYS[3], KEYS[5], KEYS[8]
--- @include "blocked"
local may_replace = true
--- @include "add_begin"
store_job(job, events, id, name, ARGV[2], opts, timestamp, parent_key, parent, args[8])
call(opts.lifo and 'RPUSH' or 'LPUSH', KEYS[1], id)
if not is_blocked(meta[1], meta[2], KEYS[7]) then
  call('ZADD', KEYS[9], '0', '0')
end
call('XADD', events, 'MAXLEN', '~', cap, '*', 'event', 'waiting', 'jobId', id)
--- @include "add_end"
