{{/* Arguments and volumes of the files of the fetcher, mounted below /etc/curl-me-that. Pods
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
{{- with $credentials.netrcKey -}}
{{- $args = append $args "--netrc=/etc/curl-me-that/credentials/netrc" -}}
{{- $items = append $items (dict "key" . "path" "netrc") -}}
{{- end -}}
{{- $volumes = append $volumes (dict "name" "credentials" "secret" (dict "secretName" . "defaultMode" 0440 "items" $items)) -}}
{{- end -}}
{{- toYaml (dict "args" $args "volumes" $volumes) -}}
{{- end -}}
