-- SPDX-License-Identifier: MIT
--[[ Add a job that becomes due later.
     KEYS[1] marker   KEYS[2] meta   KEYS[3] id   KEYS[4] delayed   KEYS[5] completed   KEYS[6] events
     ARGV[1] msgpack array {key base, custom id or "", name, timestamp ms, parent key?, parent's dependencies key?,
             parent map?, scheduler id?, deduplication key?}
     ARGV[2] data JSON   ARGV[3] msgpack map of options
     Returns the id, new or existing; -5 no such parent; -7 the job belongs to another parent. ]]
local call = redis.call
local counter_key, meta_key, completed_key, events = KEYS[3], KEYS[2], KEYS[5], KEYS[6]
--- @include "delay_add"
local may_replace = true
--- @include "add_begin"
local delay = store_job(job, events, id, name, ARGV[2], opts, timestamp, parent_key, parent, args[8])
add_delayed(KEYS[4], events, KEYS[1], cap, id, tonumber(timestamp), delay)
--- @include "add_end"
