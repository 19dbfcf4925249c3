{{- define "gvList" -}}
<!-- Generated from api/v1alpha1 by `make generate`. Edit the comments there. -->

# API reference

Every field of every kind, as `kubectl explain` tells it too. Fields are optional unless marked *required*.
{{ range . }}
{{ template "gvDetails" . }}
{{ end }}
{{- end -}}
