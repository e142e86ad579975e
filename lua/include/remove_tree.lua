-- SPDX-License-Identifier: MIT
--- @include "default_cap"
--- @include "dedup_removal"
--- @include "detach"
-- Takes an id out of the first place that has it, and answers the place.
local function take_from_state(base, id)
  for _, state in ipairs({ 'completed', 'waiting-children', 'delayed', 'failed', 'prioritized' }) do
    if call('ZREM', base .. state, id) == 1 then
      return state
    end
  end
  for _, state in ipairs({ 'wait', 'paused', 'active' }) do
    if call('LREM', base .. state, 1, id) > 0 then
      return state
    end
  end
  return 'unknown'
end

-- P.remove-tree: a job out of its queue, out of its parent's dependencies, and with `options.children` all below it.
-- Children are known by their whole keys, so that the id of one is what follows the last colon.
local function remove_tree(base, id, parent_key, options)
  local key = base .. id
  if options.ignore_locked and call('EXISTS', key .. ':lock') == 1 then
    return
  elseif options.ignore_processed and call('ZSCORE', base .. 'failed', id) then
    return
  end
  detach(key, false, parent_key)
  if options.children then
    local function remove_all(children)
      for i = 1, #children do
        local child_base, child_id = split_key(children[i])
        remove_tree(child_base, child_id, key, options)
      end
    end
    if not options.ignore_processed then
      remove_all(call('HKEYS', key .. ':processed'))
      remove_all(call('HKEYS', key .. ':failed'))
      remove_all(call('ZRANGE', key .. ':unsuccessful', 0, -1))
    end
    remove_all(call('SMEMBERS', key .. ':dependencies'))
  end
  local previous = take_from_state(base, id)
  drop_dedup(base, id, call('HGET', key, 'deid'))
  if delete_job_keys(key) > 0 then
    local meta_key = base .. 'meta'
    local cap = call('HGET', meta_key, 'opts.maxLenEvents') or default_cap(meta_key)
    call('XADD', base .. 'events', 'MAXLEN', '~', cap, '*', 'event', 'removed', 'jobId', id, 'prev', previous)
  end
end
