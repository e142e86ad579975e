-- SPDX-License-Identifier: MIT
-- Where the jobs of groups wait. Reads only.
local function lane_of(group)
  return base .. 'g:' .. group .. ':pending'
end

-- Every lane that can hold a job is in the ring, paused, or has jobs in flight (it is at its ceiling).
local function all_lanes()
  local seen, groups = {}, {}
  for _, list in ipairs({
    call('LRANGE', base .. 'ring', 0, -1), call('SMEMBERS', base .. 'paused'), call('HKEYS', base .. 'gactive'),
  }) do
    for _, group in ipairs(list) do
      if not seen[group] then
        seen[group], groups[#groups + 1] = true, group
      end
    end
  end
  return groups
end
