-- SPDX-License-Identifier: MIT
-- P.pop: the next id, already in `active`. When nothing waits the priority counter starts anew, or it would
-- grow until the scores wrap. Ids that begin with `0:` are markers of an ancient version, not jobs.
local function pop_job(wait, active, prioritized, counter)
  local id = call('RPOPLPUSH', wait, active)
  while id and string.sub(id, 1, 2) == '0:' do
    call('LREM', active, 1, id)
    id = call('RPOPLPUSH', wait, active)
  end
  if id then
    return id
  end
  id = call('ZPOPMIN', prioritized)[1]
  if id then
    call('LPUSH', active, id)
    return id
  end
  call('DEL', counter)
  return nil
end
