{{/* Common parts of the pods of all services. */}}

{{/* The restricted Pod Security Standard, for a pod and for its containers. OpenShift chooses the ids itself, and
rejects pods that do. */}}
{{- define "curl-me-that.podSecurity" -}}
runAsNonRoot: true
{{- if not (.Capabilities.APIVersions.Has "security.openshift.io/v1") }}
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "curl-me-that.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Nodes and image pull secrets of a pod. Takes (list $ values). */}}
{{- define "curl-me-that.nodes" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector | default $root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations | default $root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Scheduling of the pods of a service. Takes (list $ component values). */}}
{{- define "curl-me-that.placement" -}}
{{- $root := index . 0 -}}
{{- $values := index . 2 -}}
{{- include "curl-me-that.nodes" (list $root $values) }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- with $values.topologySpreadConstraints }}
  {{- toYaml . | nindent 2 }}
{{- else }}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "curl-me-that.selectorLabels" (list $root (index $ 1)) | nindent 8 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Health port of a service. Takes its component. */}}
{{- define "curl-me-that.healthPort" -}}
{{ get (dict "watcher" 8081 "fetcher" 8082 "writer" 8083 "keeper" 8085 "credentials" 8085 "hooks" 8086) . }}
{{- end -}}

{{/* Port of the metrics, and arguments and ports of a service. Metrics are at the health port unless they have
their own. All three take (list $ component). */}}
{{- define "curl-me-that.metricsPort" -}}
{{ (index . 0).Values.metrics.port | default (include "curl-me-that.healthPort" (index . 1)) }}
{{- end -}}

{{- define "curl-me-that.listenArgs" -}}
- --listen=:{{ include "curl-me-that.healthPort" (index . 1) }}
{{- with (index . 0).Values.metrics.port }}
- --metrics-listen=:{{ . }}
{{- end }}
{{- end -}}

{{- define "curl-me-that.listenPorts" -}}
{{- if (index . 0).Values.metrics.port }}
- {name: health, containerPort: {{ include "curl-me-that.healthPort" (index . 1) }}}
{{- end }}
- {name: metrics, containerPort: {{ include "curl-me-that.metricsPort" . }}}
{{- end -}}

{{/* Probes of a service. It is alive if it responds, even while it drains, and ready if all its parts are. */}}
{{- define "curl-me-that.probes" -}}
{{- $port := empty .Values.metrics.port | ternary "metrics" "health" -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ $port }}}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: {{ $port }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: {{ $port }}}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- end -}}

{{/* Environment of a service. Takes (list $ component values memory-limit). */}}
{{- define "curl-me-that.env" -}}
{{- $root := index . 0 -}}
{{- $values := index . 2 -}}
{{- with index . 3 }}
- name: GOMEMLIMIT
  value: {{ include "curl-me-that.goMemLimit" (list . (printf "%s.resources.limits.memory" (index $ 1))) }}
{{- end }}
{{- with $root.Values.tracing.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
- name: OTEL_SERVICE_NAME
  value: curl-me-that-{{ index $ 1 }}
- name: K8S_POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.namespace.name={{ $root.Release.Namespace }},k8s.pod.name=$(K8S_POD_NAME)
{{- end }}
{{- with $values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Arguments of the log, and arguments that must be the same for watcher and writer. */}}
{{- define "curl-me-that.grammarArgs" -}}
{{- with .Values.annotations.keys }}
- --annotation-keys={{ join "," . }}
{{- end }}
{{- with .Values.annotations.defaultScheme }}
- --default-scheme={{ . }}
{{- end }}
{{- with .Values.annotations.selector }}
- {{ printf "--selector=%s" . | quote }}
{{- end }}
- --protected-namespaces={{ join "," .Values.protectedNamespaces }}
{{- end -}}

{{- define "curl-me-that.logArgs" -}}
- --log-level={{ .Values.log.level }}
- --log-format={{ .Values.log.format }}
{{- end -}}

{{/* Volumes of a service and their mounts. Both take (list $ component values). */}}
{{- define "curl-me-that.volumes" -}}
{{- $nats := include "curl-me-that.natsVolume" (list (index . 0) (index . 1)) -}}
{{- with $nats }}
{{ . }}
{{- end }}
{{- with (index . 2).extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "curl-me-that.mounts" -}}
{{- $nats := include "curl-me-that.natsMount" (list (index . 0) (index . 1)) -}}
{{- with $nats }}
{{ . }}
{{- end }}
{{- with (index . 2).extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* "true" if an autoscaler sets the replicas of the fetchers, else empty. */}}
{{- define "curl-me-that.scaled" -}}
{{- $a := .Values.fetcher.autoscaling -}}
{{- if and $a.keda.enabled $a.hpa.enabled -}}
{{- fail "fetcher.autoscaling: keda.enabled and hpa.enabled exclude each other" -}}
{{- end -}}
{{- if or $a.keda.enabled $a.hpa.enabled -}}
true
{{- end -}}
{{- end -}}
