-- SPDX-License-Identifier: MIT
-- Re-scores held jobs that are still in active, all to one deadline; `each(id, token)` sees those. Whoever was
-- reaped is lost: to add it again would put it into active and pending at once. Read and written by slices.
--- @include "lease_clock"
local function extend_all(active, wanted, lease, each)
  local deadline, lost = digits(clock() + lease), {}
  for from = 1, #wanted, 2000 do
    local to = math.min(from + 1999, #wanted)
    local ids, scores = {}, {}
    for i = from, to do
      ids[#ids + 1] = wanted[i][1]
    end
    local present = call('ZMSCORE', active, unpack(ids))
    for i = from, to do
      local id, token = wanted[i][1], wanted[i][2]
      if present[i - from + 1] and call('HGET', base .. 'job:' .. id, 'attempts') == token then
        scores[#scores + 1] = deadline
        scores[#scores + 1] = id
        if each then
          each(id, token)
        end
      else
        lost[#lost + 1] = id
      end
    end
    if scores[1] then
      call('ZADD', active, 'XX', unpack(scores))
    end
  end
  return lost
end
