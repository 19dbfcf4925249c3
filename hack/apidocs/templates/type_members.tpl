{{- define "type_members" -}}
{{- $field := . -}}
{{- range $field.Validation }}{{ if hasPrefix "Required" . }}*Required.* {{ end }}{{ end -}}
{{- if eq $field.Name "metadata" -}}
The standard object metadata; the name has at most 63 characters.
{{- else -}}
{{ $field.Doc | replace "\n" " " | markdownRenderFieldDoc }}
{{- end -}}
{{- end -}}
