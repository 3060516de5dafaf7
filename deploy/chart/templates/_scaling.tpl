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
