{{- define "gvDetails" -}}
{{- $gv := . -}}
## {{ $gv.GroupVersionString }}

Kinds:{{ range $i, $kind := $gv.SortedKinds }}{{ if $i }},{{ end }} {{ $gv.TypeForKind $kind | markdownRenderTypeLink }}{{ end }}
{{ range $gv.SortedTypes }}
{{- template "type" . }}
{{- end }}
{{- end -}}
