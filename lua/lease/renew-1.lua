-- SPDX-License-Identifier: MIT
--[[ Move the deadlines of many held jobs, and refresh their presence markers.   KEYS[1] active
     ARGV[1] queue base   ARGV[2] lease ms   ARGV[3] ms that the markers last, 0 = none
     ARGV[4] msgpack array of [id, token]
     Returns the ids that could not be extended: stale, gone, or no longer in active. ]]
local call, base, marker = redis.call, ARGV[1], tonumber(ARGV[3])
--- @include "lease_extend"
return extend_all(KEYS[1], cmsgpack.unpack(ARGV[4]), tonumber(ARGV[2]), function(id, token)
  if marker > 0 then
    call('SET', base .. 'job:' .. id .. ':lock', token, 'PX', marker)
  end
end)
