{{/* Memory limits and GOMEMLIMIT. */}}

{{/* Bytes of a quantity such as 256Mi. Takes (list quantity value-name). */}}
{{- define "curl-me-that.bytes" -}}
{{- $quantity := index . 0 | toString -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?" $quantity -}}
{{- $unit := trimPrefix $number $quantity -}}
{{- if or (eq $number "") (not (hasKey $units $unit)) -}}
{{- fail (printf "%s: %q is not a size such as 256Mi" (index . 1) $quantity) -}}
{{- end -}}
{{- mulf $number (get $units $unit) | int64 -}}
{{- end -}}

{{/* Bytes of all concurrent bodies. A fetcher holds each twice. */}}
{{- define "curl-me-that.bodyBytes" -}}
{{- mul .Values.fetcher.concurrency .Values.fetcher.maxBody 2 -}}
{{- end -}}

{{/* Memory limit of the fetcher. By default, 80 % of it is the bodies, 128 MiB for rules and 32 MiB, and it
is at least the request. */}}
{{- define "curl-me-that.fetcherMemory" -}}
{{- with dig "resources" "limits" "memory" "" .Values.fetcher -}}
{{- . -}}
{{- else -}}
{{- $heap := add (include "curl-me-that.bodyBytes" . | int64) 134217728 33554432 -}}
{{- $requested := dig "resources" "requests" "memory" "0" .Values.fetcher -}}
{{- $bytes := max (div (mul $heap 5) 4) (include "curl-me-that.bytes" (list $requested "fetcher.resources.requests.memory") | int64) -}}
{{- printf "%dMi" (div (add $bytes 1048575) 1048576) -}}
{{- end -}}
{{- end -}}

{{/* Memory limit of the bundled NATS. Default: 64 MiB plus 4 KiB per key, but at least the request.
After an outage NATS publishes all overdue timers at once. */}}
{{- define "curl-me-that.natsMemory" -}}
{{- $b := .Values.nats.bundled -}}
{{- with dig "resources" "limits" "memory" "" $b -}}
{{- . -}}
{{- else -}}
{{- $requested := dig "resources" "requests" "memory" "0" $b -}}
{{- $bytes := max (add 67108864 (mul 4096 (int64 $b.expectedKeys))) (include "curl-me-that.bytes" (list $requested "nats.bundled.resources.requests.memory") | int64) -}}
{{- printf "%dMi" (div (add $bytes 1048575) 1048576) -}}
{{- end -}}
{{- end -}}

{{/* GOMEMLIMIT is 80 % of the memory limit; the Go runtime does not count the rest.
Takes (list limit value-name). */}}
{{- define "curl-me-that.goMemLimit" -}}
{{- printf "%dMiB" (div (div (mul (include "curl-me-that.bytes" . | int64) 4) 5) 1048576) -}}
{{- end -}}
