-- SPDX-License-Identifier: MIT
--- @include "each_batch"
-- Takes each of `ids` out of a list once, the leftmost one, and answers those that were there. Many at a time
-- are filtered in one pass and the rest written back, since a search from the left for each is quadratic:
-- twenty thousand dead jobs would block the server for seconds.
local function take_out(list, ids)
  local found = {}
  if #ids <= 100 then
    for i = 1, #ids do
      if call('LREM', list, 1, ids[i]) > 0 then
        found[#found + 1] = ids[i]
      end
    end
    return found
  end
  local wanted, kept = {}, {}
  for i = 1, #ids do
    wanted[ids[i]] = true
  end
  local all = call('LRANGE', list, 0, -1)
  for i = 1, #all do
    local id = all[i]
    if wanted[id] then
      wanted[id] = nil
      found[#found + 1] = id
    else
      kept[#kept + 1] = id
    end
  end
  call('DEL', list)
  each_batch(kept, function(...)
    call('RPUSH', list, ...)
  end)
  return found
end
