{{/* Rules of NetworkPolicies. */}}

{{- define "curl-me-that.ports" -}}
ports:
  {{- range $port := index . 0 }}
  {{- range $protocol := index $ 1 }}
  - {protocol: {{ $protocol }}, port: {{ $port }}}
  {{- end }}
  {{- end }}
{{- end -}}

{{/* The address of a rule as a range of its own. Takes an address. */}}
{{- define "curl-me-that.single" -}}
{{ . }}/{{ contains ":" . | ternary 128 32 }}
{{- end -}}

{{/* Where a rule leads. One without peers would lead anywhere, so it is refused by a
sentence. Takes (list peers sentence). */}}
{{- define "curl-me-that.to" -}}
to:
  {{- index . 0 | default nil | required (index . 1) | toYaml | nindent 2 }}
{{- end -}}

{{/* The name servers of the cluster: by what they are, by the address at which a cache
on each node listens, and by that of their Service, which such a cache may take over. */}}
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
    {{- /* Not by default, which would look the Service up where helm may not, too. */}}
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
  {{- include "curl-me-that.to" (list (index . 0).Values.networkPolicy.nats.to "networkPolicy.nats.to: name the peers that are your NATS, such as [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: nats}}}]; [{ipBlock: {cidr: 0.0.0.0/0}}] is any address") | nindent 2 }}
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

{{/* A policy cannot select the API server, only its addresses: those that are given, or
those that the cluster has now, before and behind the Service. */}}
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
{{- fail "networkPolicy.apiServer.cidrs: here is no cluster in which the API server could be looked up (helm template, a dry run on the client, Argo CD): name its addresses, those of `kubectl -n default get service,endpointslice kubernetes`; [0.0.0.0/0] is any address" -}}
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

{{- define "curl-me-that.egressMonitor" -}}
{{- if .Values.nats.bundled.enabled -}}
- to:
    - podSelector:
        matchLabels:
          {{- include "curl-me-that.selectorLabels" (list . "nats") | nindent 10 }}
  ports: [{protocol: TCP, port: 8222}]
{{- else -}}
{{ include "curl-me-that.ownNATS" (list . (list (regexFind "[0-9]+$" .Values.nats.monitoringEndpoint | default "8222"))) }}
{{- end -}}
{{- end -}}
