-- SPDX-License-Identifier: MIT
--- @include "default_cap"
--- @include "store"
-- The first half of the four add scripts, up to the storing. It expects counter_key, meta_key, completed_key, events
-- and may_replace, and leaves args, opts, base, name, timestamp, parent_key, parent (JSON), meta, cap, id and job.
-- The rare branches make their functions when they run.
local args, opts = cmsgpack.unpack(ARGV[1]), cmsgpack.unpack(ARGV[3])
local base, id, name, timestamp, parent_key = args[1], args[2], args[3], args[4], args[5]
if parent_key and call('EXISTS', parent_key) == 0 then
  return -5
end
local turn = call('INCR', counter_key)
local meta = call('HMGET', meta_key, 'paused', 'concurrency', 'opts.maxLenEvents')
local cap = meta[3] or default_cap(meta_key)
local parent = args[7] and cjson.encode(args[7])
local job
if id == '' then
  id = string.format('%.0f', turn)
  job = base .. id
else
  job = base .. id
  if call('EXISTS', job) == 1 then
    --- @include "add_duplicate"
    return add_duplicate()
  end
end
if args[9] and opts.de then
  --- @include "add_dedup"
  local owner = add_deduplicated(opts.de, args[9])
  if owner then
    return owner
  end
end
