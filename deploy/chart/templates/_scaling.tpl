{{/* Whether something scales the fetchers, which then have no replicas of their
own: "true" or nothing. */}}
{{- define "curl-me-that.scaled" -}}
{{- $a := .Values.fetcher.autoscaling -}}
{{- if and $a.keda.enabled $a.hpa.enabled -}}
{{- fail "fetcher.autoscaling: keda.enabled and hpa.enabled exclude each other" -}}
{{- end -}}
{{- if or $a.keda.enabled $a.hpa.enabled -}}
true
{{- end -}}
{{- end -}}
