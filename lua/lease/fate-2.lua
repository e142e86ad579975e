-- SPDX-License-Identifier: MIT
--[[ Show in one instant what became of calls whose reply was lost. Reads only.   KEYS[1] active   KEYS[2] row prefix
     ARGV[1] queue base   ARGV[2] owner that a lost claim was made for, or empty   ARGV[3..] ids of the jobs settled
     Returns [array per id of [attempts, state, spent], empty texts where missing;
              array of [id, flat row] of the active jobs of exactly that owner]. ]]
local call, base, owner = redis.call, ARGV[1], ARGV[2]
--- @include "lease_owned"
local rows, claimed = {}, {}
for i = 3, #ARGV do
  local f = call('HMGET', base .. 'job:' .. ARGV[i], 'attempts', 'state', 'spent')
  rows[i - 2] = { f[1] or '', f[2] or '', f[3] or '' }
end
if owner ~= '' then
  for _, id in ipairs(owned_by(KEYS[1], owner, 0)) do
    local row = base .. 'job:' .. id
    if call('HGET', row, 'owner') == owner then
      claimed[#claimed + 1] = { id, call('HGETALL', row) }
    end
  end
end
return { rows, claimed }
