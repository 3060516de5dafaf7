{{/* metadata of a role or its binding. Its name contains the namespace of the release, so that two
releases do not collide. Takes (list $ component name namespace). The namespace is empty for
cluster-scoped objects. */}}
{{- define "curl-me-that.rbacMetadata" -}}
name: {{ include "curl-me-that.rbacName" (list (index . 0) (index . 2)) }}
{{- with index . 3 }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "curl-me-that.labels" (list (index . 0) (index . 1)) | nindent 2 }}
{{- end -}}

{{/* Takes (list $ name). */}}
{{- define "curl-me-that.rbacName" -}}
{{- $namespace := (index . 0).Release.Namespace -}}
{{- $name := index . 1 -}}
{{- hasPrefix (printf "%s-" $namespace) $name | ternary $name (printf "%s-%s" $namespace $name) -}}
{{- end -}}
