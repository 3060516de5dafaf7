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
