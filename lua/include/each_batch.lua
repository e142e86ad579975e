-- SPDX-License-Identifier: MIT
-- Runs a variadic command over a long list: Lua cannot spread more than about 8000 values at once.
local function each_batch(values, run)
  for from = 1, #values, 7000 do
    run(unpack(values, from, math.min(from + 6999, #values)))
  end
end
