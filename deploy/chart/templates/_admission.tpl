{{/* What stands between white space in an annotation, as CEL: the string that "." evaluates
to, split as Go's strings.Fields does, and by that the watcher. */}}
{{- define "curl-me-that.pairs" -}}
{{ . }}.findAll(r'[^\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+')
{{- end -}}
