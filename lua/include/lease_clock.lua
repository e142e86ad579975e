-- SPDX-License-Identifier: MIT
-- The server's clock in ms, the only one that decides about leases and schedules; and a number as plain digits.
local function clock()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function digits(number)
  return string.format('%.0f', number)
end
