-- SPDX-License-Identifier: MIT
--[[ Refuse when the queue runs as many jobs as its ceiling allows. Writes nothing.   KEYS[1] meta   KEYS[2] active
     ARGV none
     Returns 1. Refuses with EMQRATE. ]]
local call = redis.call
local ceiling = tonumber(call('HGET', KEYS[1], 'concurrency')) or 0
if ceiling > 0 and call('ZCARD', KEYS[2]) >= ceiling then
  return redis.error_reply('EMQRATE as many jobs are active as the queue allows')
end
return 1
