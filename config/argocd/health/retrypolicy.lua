-- Health of a RetryPolicy for Argo CD.
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
  return { status = "Healthy", message = ready.message }
end
return { status = "Progressing", message = ready.message }
