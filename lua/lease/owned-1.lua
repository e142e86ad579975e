-- SPDX-License-Identifier: MIT
--[[ Show the active jobs of an owner, besides those it knows. Reads only.   KEYS[1] active
     ARGV[1] queue base   ARGV[2] what their owner field starts with   ARGV[3] msgpack array of known [id, token]
     Returns an array of [id, flat row]. ]]
local call, base = redis.call, ARGV[1]
--- @include "lease_owned"
local known, rows = {}, {}
for _, pair in ipairs(cmsgpack.unpack(ARGV[3])) do
  known[pair[1]] = pair[2]
end
for _, id in ipairs(owned_by(KEYS[1], ARGV[2], 0)) do
  local row = base .. 'job:' .. id
  if not known[id] or known[id] ~= call('HGET', row, 'attempts') then
    rows[#rows + 1] = { id, call('HGETALL', row) }
  end
end
return rows
