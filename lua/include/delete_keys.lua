-- SPDX-License-Identifier: MIT
-- "Delete the job's keys": these six and never the lock.
local function delete_job_keys(job)
  call('DEL', job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful')
end
