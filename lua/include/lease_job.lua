-- SPDX-License-Identifier: MIT
-- A row as the transitions read it, and the test of the token.
--
-- The token is `attempts` as text. It holds the job while the job is active, and, after a reap that nobody has
-- followed by a claim, while it is pending again. `spent` is the last token whose holder has let go by itself: it
-- does not match a second time, so a repeated retry changes nothing.
local function load_job(id)
  local row = base .. 'job:' .. id
  local f = call(
    'HMGET', row, 'attempts', 'state', 'spent', 'group', 'parent', 'parent_queue', 'parent_policy', 'deid',
    'budget_base', 'flow'
  )
  if not f[1] then
    return nil
  end
  return {
    id = id, row = row, attempts = f[1], state = f[2], spent = f[3], group = f[4], parent = f[5],
    parent_queue = f[6], policy = f[7], deid = f[8], budget_base = tonumber(f[9]) or 0, flow = f[10],
  }
end

-- The job, or nil and why not.
local function held(id, token)
  local job = load_job(id)
  if not job then
    return nil, 'gone'
  end
  local holds = job.attempts == token and job.spent ~= token
  if holds and (job.state == 'active' or job.state == 'pending') then
    return job
  end
  return nil, 'stale'
end
