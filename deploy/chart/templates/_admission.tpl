{{/* Fields of the CEL string ".", split like strings.Fields of Go, which the watcher uses. */}}
{{- define "curl-me-that.pairs" -}}
{{ . }}.findAll(r'[^\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+')
{{- end -}}

{{/* Selector of namespaces whose pods can get sidecars. */}}
{{- define "curl-me-that.injectedNamespaces" -}}
matchLabels: {x-kv8s.io/inject: enabled}
{{- if or .Values.protectedNamespaces .Values.namespaces }}
matchExpressions:
  {{- with .Values.protectedNamespaces }}
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ toJson . }}}
  {{- end }}
  {{- with .Values.namespaces }}
  - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
  {{- end }}
{{- end }}
{{- end -}}
