-- SPDX-License-Identifier: MIT
--[[ Remove the children of a job that have neither finished nor failed nor run at the moment, with all below them.
     KEYS[1] job   KEYS[2] meta (unused)
     ARGV[1] key base (unused)   ARGV[2] id (unused)
     Returns nothing. ]]
local call = redis.call
--- @include "remove_tree"
local options = { children = true, ignore_processed = true, ignore_locked = true }
for _, child in ipairs(call('SMEMBERS', KEYS[1] .. ':dependencies')) do
  local base, id = split_key(child)
  remove_tree(base, id, KEYS[1], options)
end
