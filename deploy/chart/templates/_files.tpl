{{/* Arguments and volumes for the files of the fetcher, mounted below /etc/curl-me-that. Pods
wait for missing objects. The fetcher reloads changed files, so there is no checksum. */}}
{{- define "curl-me-that.fetcherFiles" -}}
{{- $ca := .Values.fetcher.caBundle -}}
{{- $credentials := .Values.fetcher.credentials -}}
{{- $args := list -}}
{{- $volumes := list -}}
{{- if and $ca.configMap $ca.secret -}}
{{- fail "fetcher.caBundle: configMap and secret exclude each other; put all certificates into one of them" -}}
{{- end -}}
{{- $items := list (dict "key" $ca.key "path" "ca.crt") -}}
{{- with $ca.configMap -}}
{{- $volumes = append $volumes (dict "name" "ca-bundle" "configMap" (dict "name" . "items" $items)) -}}
{{- end -}}
{{- with $ca.secret -}}
{{- $volumes = append $volumes (dict "name" "ca-bundle" "secret" (dict "secretName" . "defaultMode" 0440 "items" $items)) -}}
{{- end -}}
{{- with $volumes -}}
{{- $args = append $args "--ca-bundle=/etc/curl-me-that/ca-bundle/ca.crt" -}}
{{- end -}}
{{- with $credentials.secret -}}
{{- $args = append $args "--header-file=/etc/curl-me-that/credentials/headers.yaml" -}}
{{- $items = list (dict "key" $credentials.headersKey "path" "headers.yaml") -}}
{{- /* The whole Secret, because the header file names other files in it. */}}
{{- $sources := list (dict "secret" (dict "name" .)) (dict "secret" (dict "name" . "items" $items)) -}}
{{- range $.Values.fetcher.tokens -}}
{{- if regexMatch "^(https?://)?kubernetes([.:/]|$)" .audience -}}
{{- fail (printf "fetcher.tokens: %s: the API server may accept tokens for the audience %s; use the audience of the host that gets the token" .name .audience) -}}
{{- end -}}
{{- $token := dict "path" (printf "tokens/%s" .name) "audience" .audience "expirationSeconds" (.expirationSeconds | default 3600 | int64) -}}
{{- $sources = append $sources (dict "serviceAccountToken" $token) -}}
{{- end -}}
{{- $volumes = append $volumes (dict "name" "credentials" "projected" (dict "defaultMode" 0440 "sources" $sources)) -}}
{{- end -}}
{{- if .Values.credentials.namespaces -}}
{{- $args = append $args "--tenant-header-file=/etc/curl-me-that/team-credentials/headers.json" -}}
{{- $name := printf "%s-credentials" (include "curl-me-that.fullname" .) -}}
{{- $volumes = append $volumes (dict "name" "team-credentials" "secret" (dict "secretName" $name "defaultMode" 0440)) -}}
{{- end -}}
{{- if and .Values.fetcher.tokens (not $credentials.secret) -}}
{{- fail "fetcher.tokens: set fetcher.credentials.secret to a Secret whose header file names the tokens, such as bearerFile: tokens/NAME" -}}
{{- end -}}
{{- toYaml (dict "args" $args "volumes" $volumes) -}}
{{- end -}}
