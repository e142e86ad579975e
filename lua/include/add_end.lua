-- SPDX-License-Identifier: MIT
-- The last lines of the four add scripts.
if args[6] then
  call('SADD', args[6], job)
end
return id
