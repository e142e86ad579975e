-- SPDX-License-Identifier: MIT
-- Lets those who do the maintenance hear that something is to be done sooner than they know of. They may sleep as long
-- as nothing is due, then, and nobody polls. Where the ACL forbids the channel they look once per beat.
local function announce(channel, at)
  redis.pcall('PUBLISH', base .. channel, '{"event":"due","at":"' .. at .. '"}')
end

-- After a job was scheduled for `at`, a text: told only when it is the first of all.
local function announce_job(id, at)
  if call('ZRANGE', base .. 'schedule', 0, 0)[1] == id then
    announce('due', at)
  end
end
