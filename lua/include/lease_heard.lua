-- SPDX-License-Identifier: MIT
-- Whether events are to be published: `1` = yes, `2` = if somebody listens at this server, else no. One question per
-- call, instead of a message per job that nobody hears. In a cluster the listeners may be at another node.
local function is_loud(word)
  if word ~= '2' then
    return word == '1'
  end
  return call('PUBSUB', 'NUMSUB', base .. 'events')[2] > 0 or call('PUBSUB', 'NUMPAT') > 0
end
