-- SPDX-License-Identifier: MIT
-- A job key is the queue's base (with its colon) and, after the last colon, the id.
local function split_key(key)
  return string.match(key, '^(.*:)([^:]*)$')
end
