-- Health of a WebhookEndpoint for Argo CD. A receiver that is down or disabled, and an endpoint that is suspended, are
-- Healthy with a message: they block no wave.
local hs = { status = "Progressing", message = "Waiting for the manager" }
local status = obj.status
if status == nil or status.observedGeneration == nil or status.observedGeneration ~= obj.metadata.generation then
  return hs
end
local conditions = {}
for _, c in ipairs(status.conditions or {}) do
  conditions[c.type] = c
end
local ready = conditions["Ready"]
if ready == nil then
  return hs
end
if conditions["Stalled"] ~= nil and conditions["Stalled"].status == "True" then
  return { status = "Degraded", message = conditions["Stalled"].message }
end
if ready.status == "True" then
  local delivering = conditions["Delivering"]
  if delivering ~= nil and delivering.status == "False" then
    return { status = "Healthy", message = delivering.reason .. ": " .. delivering.message }
  end
  return { status = "Healthy", message = ready.message }
end
if ready.status == "Unknown" then
  return { status = "Unknown", message = ready.message }
end
return { status = "Progressing", message = ready.message }
