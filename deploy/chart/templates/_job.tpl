{{/* A Job that runs curlctl. Pods of a Job are immutable, so its name contains the release
revision and a hash of its template. Takes (list $ component pod-template). */}}
{{- define "curl-me-that.job" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $template := index . 2 -}}
{{- $suffix := printf "%d-%s" $root.Release.Revision ($template | sha256sum | trunc 6) -}}
apiVersion: batch/v1
kind: Job
metadata:
  {{- include "curl-me-that.metadata" (list $root $component (printf "%s-%s-%s" (include "curl-me-that.fullname" $root) $component $suffix)) | nindent 2 }}
spec:
  backoffLimit: 20
  {{- with $root.Values.jobs.ttlSeconds }}
  ttlSecondsAfterFinished: {{ . }}
  {{- end }}
  template:
    {{- $template | trim | nindent 4 }}
{{- end -}}

{{/* Pod of a Job or test. Takes a dict: root, component, account, token, args (a list), and
identity if it connects to NATS. */}}
{{- define "curl-me-that.curlctlPod" -}}
{{- $root := .root -}}
serviceAccountName: {{ .account }}
automountServiceAccountToken: {{ .token }}
enableServiceLinks: false
restartPolicy: {{ .restartPolicy }}
securityContext:
  {{- include "curl-me-that.podSecurity" $root | nindent 2 }}
{{- include "curl-me-that.nodes" (list $root dict) }}
containers:
  {{- include "curl-me-that.curlctlContainer" . | nindent 2 }}
{{- if .identity }}
{{- with include "curl-me-that.natsVolume" (list $root .identity) }}
volumes:
  {{- . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Container of such a pod. Takes the same dict. */}}
{{- define "curl-me-that.curlctlContainer" -}}
{{- $root := .root -}}
- name: {{ .component }}
  image: {{ include "curl-me-that.image" (list $root "curlctl") }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  args:
    {{- toYaml .args | nindent 4 }}
    {{- with .identity }}
    - --nats-url={{ $.url | default (include "curl-me-that.natsURL" $root) }}
    {{- include "curl-me-that.natsArgs" (list $root .) | trim | nindent 4 }}
    {{- end }}
  resources:
    requests: {cpu: 10m, memory: 32Mi}
    limits: {memory: 128Mi}
  securityContext:
    {{- include "curl-me-that.containerSecurity" $root | nindent 4 }}
  {{- if .identity }}
  {{- with include "curl-me-that.natsMount" (list $root .identity) }}
  volumeMounts:
    {{- . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end -}}

{{/* Pod templates of the Jobs. */}}

{{- define "curl-me-that.identitiesTemplate" -}}
metadata:
  labels:
    {{- include "curl-me-that.podLabels" (list .root "identities") | nindent 4 }}
spec:
  {{- include "curl-me-that.curlctlPod" (dict "root" .root "component" "identities" "restartPolicy" "OnFailure" "token" true
    "account" (printf "%s-identities" (include "curl-me-that.fullname" .root)) "args" .args) | nindent 2 }}
{{- end -}}

{{- define "curl-me-that.setupTemplate" -}}
metadata:
  labels:
    {{- include "curl-me-that.podLabels" (list . "setup") | nindent 4 }}
spec:
  {{- include "curl-me-that.curlctlPod" (dict "root" . "component" "setup" "restartPolicy" "OnFailure" "token" false "identity" "setup"
    "account" (printf "%s-setup" (include "curl-me-that.fullname" .))
    "args" (concat (list "setup" (printf "--replicas=%s" (include "curl-me-that.streamReplicas" .))) (.Values.nats.streamArgs | default list))) | nindent 2 }}
{{- end -}}

{{- define "curl-me-that.healTemplate" -}}
metadata:
  labels:
    {{- include "curl-me-that.podLabels" (list . "setup") | nindent 4 }}
spec:
  {{- include "curl-me-that.curlctlPod" (dict "root" . "component" "setup" "restartPolicy" "Always" "token" false "identity" "setup"
    "account" (printf "%s-setup" (include "curl-me-that.fullname" .))
    "args" (include "curl-me-that.healArgs" . | fromJsonArray)) | nindent 2 }}
  # Longer than one check of the streams takes.
  terminationGracePeriodSeconds: 40
{{- end -}}

{{- define "curl-me-that.healArgs" -}}
{{- concat (list "setup" "--watch" (printf "--replicas=%s" (include "curl-me-that.streamReplicas" .))) (.Values.nats.streamArgs | default list) | toJson -}}
{{- end -}}
