-- SPDX-License-Identifier: MIT
--[[ Show a page of the jobs of one state. Reads only.   KEYS[1] queue base
     ARGV[1] pending (lanes included), active, schedule or dead   ARGV[2] place of the first
     ARGV[3] place of the last, negative = counted from the end   ARGV[4] 1 = from the first to the last, else back
     Pending and dead jobs are in the order of their ids, active ones by the end of their lease, scheduled ones by
     their due time.
     Returns an array of [id, flat row]. ]]
local call, base, state = redis.call, KEYS[1], ARGV[1]
local from, to, forth = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1'
--- @include "lease_earlier"
--- @include "lease_places"
local sets, total = { base .. state }, 0
if state == 'pending' then
  for _, group in ipairs(all_lanes()) do
    sets[#sets + 1] = lane_of(group)
  end
end
for _, key in ipairs(sets) do
  total = total + call('ZCARD', key)
end
from, to = math.max(from < 0 and from + total or from, 0), math.min(to < 0 and to + total or to, total - 1)

-- Of several sets each may hold all of the page, and what comes before it.
local function merged()
  local ids = {}
  for _, key in ipairs(sets) do
    for _, id in ipairs(call(forth and 'ZRANGE' or 'ZREVRANGE', key, 0, to)) do
      ids[#ids + 1] = id
    end
  end
  table.sort(ids, function(a, b)
    if forth then
      return earlier(a, b)
    end
    return earlier(b, a)
  end)
  local page = {}
  for i = from + 1, to + 1 do
    page[#page + 1] = ids[i]
  end
  return page
end

local rows = {}
if from <= to then
  for _, id in ipairs(#sets > 1 and merged() or call(forth and 'ZRANGE' or 'ZREVRANGE', sets[1], from, to)) do
    rows[#rows + 1] = { id, call('HGETALL', base .. 'job:' .. id) }
  end
end
return rows
