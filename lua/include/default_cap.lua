-- SPDX-License-Identifier: MIT
-- P.maxlen, the rare half: meta has no cap for the event stream yet, so the usual one is written there.
local function default_cap(meta_key)
  call('HSET', meta_key, 'opts.maxLenEvents', 10000)
  return 10000
end
