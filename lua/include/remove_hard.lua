-- SPDX-License-Identifier: MIT
--- @include "detach"
-- P.remove, hard and with its deduplication id (P.dedup-drop-on-removal). Lists and sets are the caller's.
local function remove_hard(base, id)
  local job = base .. id
  detach(job, true, nil, base)
  local deid = call('HGET', job, 'deid')
  if deid and call('GET', base .. 'de:' .. deid) == id then
    call('DEL', base .. 'de:' .. deid, base .. 'dn:' .. deid)
  end
  delete_job_keys(job)
end
