-- SPDX-License-Identifier: MIT
-- P.pop, a part of fetch_next: leaves the next id in `id`, already in `active`. When nothing waits the priority counter
-- starts anew, or it would grow until the scores wrap; then the moment of the next delayed job is answered, if there is
-- one. Ids that begin with `0:` are markers of an ancient version, not jobs.
local id = call('RPOPLPUSH', wait, active)
while id and string.sub(id, 1, 2) == '0:' do
  call('LREM', active, 1, id)
  id = call('RPOPLPUSH', wait, active)
end
if not id then
  id = call('ZPOPMIN', prioritized)[1]
  if not id then
    call('DEL', counter)
    return due and { 0, 0, 0, due / 4096 } or nil
  end
  call('LPUSH', active, id)
end
