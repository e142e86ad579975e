-- SPDX-License-Identifier: MIT
--[[ Add a job that waits for its children.
     KEYS[1] meta   KEYS[2] id   KEYS[3] delayed   KEYS[4] waiting-children   KEYS[5] completed   KEYS[6] events
     ARGV[1] msgpack array {key base, custom id or "", name, timestamp ms, parent key?, parent's dependencies key?,
             parent map?, scheduler id?, deduplication key?}
     ARGV[2] data JSON   ARGV[3] msgpack map of options
     Returns the id, new or existing; -5 no such parent; -7 the job belongs to another parent. ]]
local call = redis.call
local counter_key, meta_key, completed_key, events = KEYS[2], KEYS[1], KEYS[5], KEYS[6]
local may_replace = false
--- @include "add_begin"
store_job(job, events, id, name, ARGV[2], opts, timestamp, parent_key, parent, args[8])
call('ZADD', KEYS[4], timestamp, id)
call('XADD', events, 'MAXLEN', '~', cap, '*', 'event', 'waiting-children', 'jobId', id)
--- @include "add_end"
