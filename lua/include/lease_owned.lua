-- SPDX-License-Identifier: MIT
-- Ids in active whose row names an owner that starts with `prefix`, at most `most`.
local function owned_by(active, prefix, most)
  local found, size = {}, #prefix
  for _, id in ipairs(call('ZRANGE', active, 0, -1)) do
    local owner = call('HGET', base .. 'job:' .. id, 'owner')
    if owner and owner:sub(1, size) == prefix then
      found[#found + 1] = id
      if #found == most then
        break
      end
    end
  end
  return found
end
