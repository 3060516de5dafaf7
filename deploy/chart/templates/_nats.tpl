{{/* Connection to NATS. */}}

{{- define "curl-me-that.natsName" -}}
{{ include "curl-me-that.fullname" . }}-nats
{{- end -}}

{{/* URL of the bundled NATS or your own. */}}
{{- define "curl-me-that.natsURL" -}}
{{- if and .Values.nats.bundled.enabled .Values.nats.url -}}
{{- fail "nats: url and bundled.enabled exclude each other; set nats.bundled.enabled=false to use your own NATS" -}}
{{- else if .Values.nats.bundled.enabled -}}
tls://{{ include "curl-me-that.natsName" . }}:4222
{{- else -}}
{{- required "nats.url: set it to the address of your NATS, such as tls://nats.nats:4222, or set nats.bundled.enabled=true" .Values.nats.url -}}
{{- end -}}
{{- end -}}

{{/* The Secret of an identity, or empty. Takes (list $ identity). */}}
{{- define "curl-me-that.natsSecret" -}}
{{- $nats := (index . 0).Values.nats -}}
{{- if $nats.bundled.enabled -}}
{{ include "curl-me-that.natsName" (index . 0) }}-{{ index . 1 }}
{{- else if ne $nats.credentials.kind "none" -}}
{{- get $nats.credentials.secrets (index . 1) -}}
{{- end -}}
{{- end -}}

{{/* "true" if an identity is available. Takes (list $ identity). */}}
{{- define "curl-me-that.hasIdentity" -}}
{{- $nats := (index . 0).Values.nats -}}
{{- if or (include "curl-me-that.natsSecret" .) (and (not $nats.bundled.enabled) (eq $nats.credentials.kind "none")) -}}
true
{{- end -}}
{{- end -}}

{{/* Arguments of a service or of curlctl. Takes (list $ identity). */}}
{{- define "curl-me-that.natsArgs" -}}
{{- $root := index . 0 -}}
{{- $nats := $root.Values.nats -}}
{{- if $nats.bundled.enabled }}
- --nats-nkey=/etc/curl-me-that/nats/nkey
- --nats-ca=/etc/curl-me-that/nats/ca.crt
{{- else }}
{{- if include "curl-me-that.natsSecret" . }}
- --nats-{{ $nats.credentials.kind }}=/etc/curl-me-that/nats/{{ $nats.credentials.kind }}
{{- else if ne $nats.credentials.kind "none" }}
{{- fail (printf "nats.credentials.secrets.%s: set the Secret with the %s of this identity, or set nats.credentials.kind=none" (index . 1) $nats.credentials.kind) }}
{{- end }}
{{- if $nats.tls.caSecret }}
- --nats-ca=/etc/curl-me-that/nats/ca.crt
{{- end }}
{{- if $nats.tls.clientSecret }}
- --nats-cert=/etc/curl-me-that/nats/tls.crt
- --nats-key=/etc/curl-me-that/nats/tls.key
{{- end }}
{{- end }}
{{- end -}}

{{/* Volume with the files of the arguments, if any. Takes (list $ identity). */}}
{{- define "curl-me-that.natsVolume" -}}
{{- $nats := (index . 0).Values.nats -}}
{{- $sources := list -}}
{{- $secret := include "curl-me-that.natsSecret" . -}}
{{- if $nats.bundled.enabled -}}
{{- $items := list (dict "key" "nkey" "path" "nkey") (dict "key" "ca.crt" "path" "ca.crt") -}}
{{- with include "curl-me-that.signing" . -}}
{{- $items = append $items (dict "key" . "path" .) -}}
{{- end -}}
{{- $sources = append $sources (dict "name" $secret "items" $items) -}}
{{- else -}}
{{- if $secret -}}
{{- $kind := $nats.credentials.kind -}}
{{- $key := $nats.credentials.key | default (eq $kind "creds" | ternary "user.creds" "nkey") -}}
{{- $sources = append $sources (dict "name" $secret "items" (list (dict "key" $key "path" $kind))) -}}
{{- end -}}
{{- with $nats.tls.caSecret -}}
{{- $sources = append $sources (dict "name" . "items" (list (dict "key" $nats.tls.caKey "path" "ca.crt"))) -}}
{{- end -}}
{{- with $nats.tls.clientSecret -}}
{{- $sources = append $sources (dict "name" . "items" (list (dict "key" "tls.crt" "path" "tls.crt") (dict "key" "tls.key" "path" "tls.key"))) -}}
{{- end -}}
{{- with include "curl-me-that.signing" . -}}
{{- $sources = append $sources (dict "name" $nats.signingSecret "items" (list (dict "key" . "path" .))) -}}
{{- end -}}
{{- end -}}
{{- with $sources -}}
- name: nats
  projected:
    defaultMode: 0440
    sources:
    {{- range . }}
      - secret: {{ toJson . }}
    {{- end }}
{{- end -}}
{{- end -}}

{{/* File that signs wants (watcher) or verifies them (writer, fetcher), if any.
Takes (list $ identity). */}}
{{- define "curl-me-that.signing" -}}
{{- $nats := (index . 0).Values.nats -}}
{{- if or $nats.bundled.enabled $nats.signingSecret -}}
{{- get (dict "watcher" "signing.nk" "writer" "signing.pub" "fetcher" "signing.pub") (index . 1) -}}
{{- end -}}
{{- end -}}

{{/* The mount of that volume. Takes (list $ identity). */}}
{{- define "curl-me-that.natsMount" -}}
{{- if include "curl-me-that.natsVolume" . -}}
- {name: nats, mountPath: /etc/curl-me-that/nats, readOnly: true}
{{- end -}}
{{- end -}}

{{/* Checksum of the credentials for your own NATS, so that a change restarts the pods. It is empty without a
cluster (helm template). Takes (list $ identity). */}}
{{- define "curl-me-that.natsChecksum" -}}
{{- $root := index . 0 -}}
{{- if not $root.Values.nats.bundled.enabled -}}
{{- $found := list -}}
{{- range list (include "curl-me-that.natsSecret" .) $root.Values.nats.tls.caSecret $root.Values.nats.tls.clientSecret $root.Values.nats.signingSecret -}}
{{- if . -}}
{{- with lookup "v1" "Secret" $root.Release.Namespace . -}}
{{- $found = append $found .data -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $found -}}
checksum/nats-credentials: {{ toJson . | sha256sum }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Replicas of each stream. */}}
{{- define "curl-me-that.streamReplicas" -}}
{{- if .Values.nats.streamReplicas -}}
{{- .Values.nats.streamReplicas -}}
{{- else if .Values.nats.bundled.enabled -}}
{{- .Values.nats.bundled.replicas -}}
{{- else -}}
0
{{- end -}}
{{- end -}}

{{/* The account of the services in deploy/nats/accounts.conf. */}}
{{- define "curl-me-that.natsAccount" -}}
CURL
{{- end -}}
