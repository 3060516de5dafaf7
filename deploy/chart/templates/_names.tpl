{{/* Names, labels and images. */}}

{{- define "curl-me-that.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Prefix of all names, short enough for any suffix. */}}
{{- define "curl-me-that.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "curl-me-that.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "curl-me-that.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Selector labels, which never change. Takes (list $ component). An empty component selects
all pods of the release. */}}
{{- define "curl-me-that.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "curl-me-that.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{/* A version or tag as the value of a label. Tags may be twice as long. */}}
{{- define "curl-me-that.labelValue" -}}
{{ . | replace "+" "_" | trunc 63 | regexFind "^.*[a-zA-Z0-9]" }}
{{- end -}}

{{/* Labels of an object. Takes (list $ component). */}}
{{- define "curl-me-that.labels" -}}
{{- $root := index . 0 -}}
{{ include "curl-me-that.selectorLabels" . }}
app.kubernetes.io/part-of: curl-me-that
app.kubernetes.io/version: {{ $root.Values.image.tag | default $root.Chart.AppVersion | include "curl-me-that.labelValue" | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | include "curl-me-that.labelValue" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of a pod. They contain no version, because changed labels replace pods, and a NATS
pod without a volume would lose its data. Takes (list $ component). */}}
{{- define "curl-me-that.podLabels" -}}
{{ include "curl-me-that.selectorLabels" . }}
app.kubernetes.io/part-of: curl-me-that
{{- with (index . 0).Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* metadata of an object. Takes (list $ component name). */}}
{{- define "curl-me-that.metadata" -}}
{{- $root := index . 0 -}}
name: {{ index . 2 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "curl-me-that.labels" (list $root (index . 1)) | nindent 2 }}
{{- end -}}

{{/* Image of a program, with its digest if that is set. Takes (list $ name). */}}
{{- define "curl-me-that.image" -}}
{{- $root := index . 0 -}}
{{- printf "%s/%s:%s" $root.Values.image.registry (index . 1) ($root.Values.image.tag | default $root.Chart.AppVersion) -}}
{{- with index $root.Values.image.digests (index . 1) }}@{{ . }}{{ end -}}
{{- end -}}

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
