{{/* Rules of NetworkPolicies. */}}

{{- define "curl-me-that.ports" -}}
ports:
  {{- range $port := index . 0 }}
  {{- range $protocol := index $ 1 }}
  - {protocol: {{ $protocol }}, port: {{ $port }}}
  {{- end }}
  {{- end }}
{{- end -}}

{{/* CIDR of a single address. */}}
{{- define "curl-me-that.single" -}}
{{ . }}/{{ contains ":" . | ternary 128 32 }}
{{- end -}}

{{/* Peers of a rule. A rule without peers would allow any address, so it fails with a message.
Takes (list peers message). */}}
{{- define "curl-me-that.to" -}}
to:
  {{- index . 0 | default nil | required (index . 1) | toYaml | nindent 2 }}
{{- end -}}

{{/* DNS of the cluster: its pods, a node-local cache, and the address of the Service, which such a
cache can take over. */}}
{{- define "curl-me-that.nameServers" -}}
- namespaceSelector:
    matchExpressions:
      - {key: kubernetes.io/metadata.name, operator: In, values: [kube-system, openshift-dns]}
- ipBlock: {cidr: 169.254.20.10/32}
{{- range dig "spec" "clusterIPs" list (lookup "v1" "Service" "kube-system" "kube-dns") }}
- ipBlock: {cidr: {{ include "curl-me-that.single" . | quote }}}
{{- end }}
{{- end -}}

{{- define "curl-me-that.egressDNS" -}}
{{- with .Values.networkPolicy.dns -}}
- {{ include "curl-me-that.ports" (list .ports (list "UDP" "TCP")) | nindent 2 | trim }}
  to:
    {{- /* `default` would look up the Service even if helm may not. */}}
    {{- if .to }}
    {{- toYaml .to | nindent 4 }}
    {{- else }}
    {{- include "curl-me-that.nameServers" $ | nindent 4 }}
    {{- end }}
{{- end -}}
{{- end -}}

{{/* Your own NATS, at some ports. Takes (list $ ports). */}}
{{- define "curl-me-that.ownNATS" -}}
{{- $_ := include "curl-me-that.natsURL" (index . 0) -}}
- {{ include "curl-me-that.ports" (list (index . 1) (list "TCP")) | nindent 2 | trim }}
  {{- include "curl-me-that.to" (list (index . 0).Values.networkPolicy.nats.to "networkPolicy.nats.to: set the peers that are your NATS, such as [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: nats}}}]; [{ipBlock: {cidr: 0.0.0.0/0}}] allows any address") | nindent 2 }}
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
{{ include "curl-me-that.ownNATS" (list . .Values.networkPolicy.nats.ports) }}
{{- end }}
{{- end -}}

{{/* A policy cannot select the API server, so it allows addresses: those in the values, or those of
Service and endpoints at the time of install or upgrade. */}}
{{- define "curl-me-that.egressAPIServer" -}}
{{- $cidrs := .Values.networkPolicy.apiServer.cidrs -}}
{{- $ports := list -}}
{{- range .Values.networkPolicy.apiServer.ports -}}
{{- $ports = append $ports (int64 .) -}}
{{- end -}}
{{- if not $cidrs -}}
{{- range dig "spec" "clusterIPs" list (lookup "v1" "Service" "default" "kubernetes") -}}
{{- $cidrs = append $cidrs (include "curl-me-that.single" .) -}}
{{- end -}}
{{- with lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "kubernetes" -}}
{{- range .endpoints -}}
{{- range .addresses -}}
{{- $cidrs = append $cidrs (include "curl-me-that.single" .) -}}
{{- end -}}
{{- end -}}
{{- range .ports -}}
{{- $ports = append $ports (int64 .port) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $cidrs -}}
{{- fail "networkPolicy.apiServer.cidrs: helm cannot look up the API server (helm template, a client-side dry run, Argo CD); set its addresses, as in `kubectl -n default get service,endpointslice kubernetes`; [0.0.0.0/0] allows any address" -}}
{{- end -}}
- {{ include "curl-me-that.ports" (list (uniq $ports) (list "TCP")) | nindent 2 | trim }}
  to:
    {{- range uniq $cidrs }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
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
