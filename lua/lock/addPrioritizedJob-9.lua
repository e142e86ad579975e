-- SPDX-License-Identifier: MIT
--[[ Add a job that runs by its priority.
     KEYS[1] marker   KEYS[2] meta   KEYS[3] id   KEYS[4] prioritized   KEYS[5] delayed   KEYS[6] completed
     KEYS[7] active   KEYS[8] events   KEYS[9] pc
     ARGV[1] msgpack array {key base, custom id or "", name, timestamp ms, parent key?, parent's dependencies key?,
             parent map?, scheduler id?, deduplication key?}
     ARGV[2] data JSON   ARGV[3] msgpack map of options
     Returns the id, new or existing; -5 no such parent; -7 the job belongs to another parent. ]]
local call = redis.call
local counter_key, meta_key, completed_key, events = KEYS[3], KEYS[2], KEYS[6], KEYS[8]
--- @include "blocked"
--- @include "prio_push"
local may_replace = true
--- @include "add_begin"
local _, priority = store_job(job, events, id, name, ARGV[2], opts, timestamp, parent_key, parent, args[8])
push_prioritized(KEYS[4], KEYS[9], priority, id)
if not is_blocked(meta[1], meta[2], KEYS[7]) then
  call('ZADD', KEYS[1], '0', '0')
end
call('XADD', events, 'MAXLEN', '~', cap, '*', 'event', 'waiting', 'jobId', id)
--- @include "add_end"
