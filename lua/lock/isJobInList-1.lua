-- SPDX-License-Identifier: MIT
--[[ Is an id in a list?   KEYS[1] list
     ARGV[1] id
     Returns 1 or nil. ]]
for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  if id == ARGV[1] then
    return 1
  end
end
return nil
