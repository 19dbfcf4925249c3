-- Health of a DeliveryPool for Argo CD. A pool whose workers are away is Degraded; one that is suspended, or whose volume
-- is nearly full, is Healthy with a message.
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
  return { status = "Degraded", message = conditions["Ready"].text }
end
if is("StorePressure", "True") then
  return { status = "Healthy", message = conditions["StorePressure"].text }
end
if obj.spec ~= nil and obj.spec.suspend == true then
  return { status = "Healthy", message = "Suspended: events are accepted and held" }
end
return { status = "Healthy", message = conditions["Ready"].text }
