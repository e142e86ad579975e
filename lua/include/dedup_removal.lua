-- SPDX-License-Identifier: MIT
-- P.dedup-drop-on-removal: the deduplication id that the job owns is free again, and what was parked behind it gone.
local function drop_dedup(base, id, deid)
  if deid and call('GET', base .. 'de:' .. deid) == id then
    call('DEL', base .. 'de:' .. deid, base .. 'dn:' .. deid)
  end
end
