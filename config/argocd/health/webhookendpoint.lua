-- Health of a WebhookEndpoint for Argo CD. It speaks of the object, not of the receiver: an endpoint whose receiver is
-- down, and one that is disabled or suspended, is Healthy with a message, so that none of these holds up a sync.
local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "Waiting for the manager" }
end
local conditions = {}
for _, c in ipairs(status.conditions or {}) do
  conditions[c.type] = { status = c.status, text = (c.reason or "") .. ": " .. (c.message or "") }
end
local function is(kind, value)
  return conditions[kind] ~= nil and conditions[kind].status == value
end
if conditions["Ready"] == nil then
  return { status = "Progressing", message = "Waiting for the manager" }
end
if is("Stalled", "True") then
  return { status = "Degraded", message = conditions["Stalled"].text }
end
if is("Reconciling", "True") then
  return { status = "Progressing", message = conditions["Ready"].text }
end
if is("Ready", "Unknown") then
  return { status = "Unknown", message = conditions["Ready"].text }
end
if is("Ready", "False") then
  return { status = "Progressing", message = conditions["Ready"].text }
end
if is("Delivering", "False") then
  return { status = "Healthy", message = conditions["Delivering"].text }
end
if is("Healthy", "False") then
  return { status = "Healthy", message = conditions["Healthy"].text }
end
return { status = "Healthy", message = conditions["Ready"].text }
