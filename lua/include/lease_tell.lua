-- SPDX-License-Identifier: MIT
-- Publishes one event, if the script was asked to (`loud`): a flat object of texts, heard by whoever listens now.
local function tell(event, id, name, value)
  if loud then
    local message = { event = event, job = id }
    if name then
      message[name] = value
    end
    call('PUBLISH', base .. 'events', cjson.encode(message))
  end
end
