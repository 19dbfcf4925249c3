{{- define "type" -}}
{{- $type := . -}}
{{- if markdownShouldRenderType $type }}
### {{ $type.Name }}

{{ $type.Doc }}
{{- if $type.References }}

Used by:{{ range $i, $ref := $type.SortedReferences }}{{ if $i }},{{ end }} {{ markdownRenderTypeLink $ref }}{{ end }}
{{- end }}
{{ if $type.Members }}
| Field | Type | Meaning |
|---|---|---|
{{- if $type.GVK }}
| `apiVersion` | string | `{{ $type.GVK.Group }}/{{ $type.GVK.Version }}` |
| `kind` | string | `{{ $type.GVK.Kind }}` |
{{- end }}
{{- range $type.Members }}
| `{{ .Name }}` | {{ markdownRenderType .Type }} | {{ template "type_members" . }} |
{{- end }}
{{ else if $type.EnumValues }}
| Value | Meaning |
|---|---|
{{- range $type.EnumValues }}
| `{{ .Name }}` | {{ .Doc | replace "\n" " " | markdownRenderFieldDoc }} |
{{- end }}
{{ end }}
{{- end }}
{{- end -}}
