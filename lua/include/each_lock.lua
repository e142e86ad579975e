-- SPDX-License-Identifier: MIT
-- Shows every job of a list with the token its lock holds (false without a lock): visit(id, token); stops early
-- when that answers true. The locks are read with one command per slice, as many as Lua can spread.
local function each_lock(list, base, visit)
  local ids = call('LRANGE', list, 0, -1)
  for from = 1, #ids, 5000 do
    local to = math.min(from + 4999, #ids)
    local locks = {}
    for i = from, to do
      locks[#locks + 1] = base .. ids[i] .. ':lock'
    end
    local tokens = call('MGET', unpack(locks))
    for i = from, to do
      if visit(ids[i], tokens[i - from + 1]) then
        return
      end
    end
  end
end
