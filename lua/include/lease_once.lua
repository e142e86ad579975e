-- SPDX-License-Identifier: MIT
-- One reading of the clock per call, however many jobs it moves.
--- @include "lease_clock"
local read_at
local function clock_once()
  read_at = read_at or clock()
  return read_at
end
