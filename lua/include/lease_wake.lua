-- SPDX-License-Identifier: MIT
-- One token wakes one parked consumer, who passes it on when it leaves work behind; `most` may lie there at once.
local function push_wake(most)
  if call('LLEN', base .. 'wake') < most then
    call('LPUSH', base .. 'wake', '1')
  end
end
