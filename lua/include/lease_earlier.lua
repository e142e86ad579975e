-- SPDX-License-Identifier: MIT
-- The order of ids: that of their bytes. Lua's own `<` on texts follows the locale of the server.
local function earlier(a, b)
  for i = 1, #a do
    local x, y = a:byte(i), b:byte(i) or 0
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end
