{{/* Rules of NetworkPolicies. */}}

{{- define "curl-me-that.ports" -}}
ports:
  {{- range $port := index . 0 }}
  {{- range $protocol := index $ 1 }}
  - {protocol: {{ $protocol }}, port: {{ $port }}}
  {{- end }}
  {{- end }}
{{- end -}}

{{- define "curl-me-that.egressDNS" -}}
{{- with .Values.networkPolicy.dns -}}
- {{ include "curl-me-that.ports" (list .ports (list "UDP" "TCP")) | nindent 2 | trim }}
  {{- with .to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "curl-me-that.egressNATS" -}}
{{- include "curl-me-that.egressDNS" . }}
{{- if .Values.nats.bundled.enabled }}
- to:
    - podSelector:
        matchLabels:
          {{- include "curl-me-that.selectorLabels" (list . "nats") | nindent 10 }}
  ports: [{protocol: TCP, port: 4222}]
{{- else }}
- {{ include "curl-me-that.ports" (list .Values.networkPolicy.nats.ports (list "TCP")) | nindent 2 | trim }}
  {{- with .Values.networkPolicy.nats.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* A policy cannot select the API server, only its addresses. */}}
{{- define "curl-me-that.egressAPIServer" -}}
{{- with .Values.networkPolicy.apiServer -}}
- {{ include "curl-me-that.ports" (list .ports (list "TCP")) | nindent 2 | trim }}
  {{- with .cidrs }}
  to:
    {{- range . }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "curl-me-that.world" -}}
{{- range $all := list "0.0.0.0/0" "::/0" }}
- ipBlock:
    cidr: {{ $all | quote }}
    except:
      {{- range $.Values.networkPolicy.privateCIDRs }}
      {{- if eq (contains ":" .) (contains ":" $all) }}
      - {{ . | quote }}
      {{- end }}
      {{- end }}
{{- end }}
{{- end -}}

{{- define "curl-me-that.egressMonitor" -}}
{{- if .Values.nats.bundled.enabled -}}
- to:
    - podSelector:
        matchLabels:
          {{- include "curl-me-that.selectorLabels" (list . "nats") | nindent 10 }}
  ports: [{protocol: TCP, port: 8222}]
{{- else -}}
- ports: [{protocol: TCP, port: {{ regexFind "[0-9]+$" .Values.nats.monitoringEndpoint | default "8222" }}}]
  {{- with .Values.networkPolicy.nats.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
{{- end -}}
