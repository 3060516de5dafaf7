{{/* The namespaces whose pods may get sidecars: those with the label, of the namespaces that
the services work on. */}}
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
