-- Health of a DeliveryPool for Argo CD. A pool whose workers are away or can't be started is Degraded, and so is one
-- that waits for an edit; a nearly full volume is told in the message.
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
  if obj.spec ~= nil and obj.spec.suspend == true then
    return { status = "Healthy", message = "Suspended: events are accepted and held" }
  end
  local pressure = conditions["StorePressure"]
  if pressure ~= nil and pressure.status == "True" then
    return { status = "Healthy", message = pressure.message }
  end
  return { status = "Healthy", message = ready.message }
end
if conditions["Reconciling"] ~= nil and conditions["Reconciling"].status == "True" then
  return { status = "Progressing", message = ready.message }
end
return { status = "Degraded", message = ready.message }
