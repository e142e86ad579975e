-- SPDX-License-Identifier: MIT
--[[
  Add the jobs of a flow that belong to one queue, all of them or none. A node with children is held in no set.

  KEYS[1] pending

  ARGV[1] queue base
  ARGV[2] msgpack array of [id, payload, how many children, parent or empty, the parent's queue when it is another,
          fp | id, array of further fields and values]

  Returns [1], or [0, id of a job that exists already]. Refuses with EMQKIND.
]]
local call, base = redis.call, ARGV[1]
--- @include "lease_admit"
--- @include "lease_ready"
local nodes = cmsgpack.unpack(ARGV[2])
for _, node in ipairs(nodes) do
  if not is_job(node[1]) then
    return redis.error_reply(WRONG_KIND)
  end
end
for _, node in ipairs(nodes) do
  if call('EXISTS', base .. 'job:' .. node[1]) == 1 then
    return { 0, node[1] }
  end
end
for _, node in ipairs(nodes) do
  local id, count, row = node[1], node[3], base .. 'job:' .. node[1]
  write_row(row, count > 0 and 'awaiting_children' or 'pending', node[2], unpack(node[7]))
  if node[4] ~= '' then
    call('HSET', row, 'parent', node[4], 'parent_policy', node[6])
    if node[5] ~= '' then
      call('HSET', row, 'parent_queue', node[5])
    end
  end
  if count > 0 then
    call('HSET', row, 'flow', '1')
    call('SET', row .. ':dependencies', count)
  else
    put_ready(id)
  end
end
return { 1 }
