-- SPDX-License-Identifier: MIT
--- @include "dedup_removal"
--- @include "detach"
-- P.remove, hard and with its deduplication id. Lists and sets are the caller's.
local function remove_hard(base, id)
  local job = base .. id
  local stored = call('HMGET', job, 'parentKey', 'deid')
  if stored[1] then
    detach(job, true, nil, base)
  end
  drop_dedup(base, id, stored[2])
  delete_job_keys(job)
end
