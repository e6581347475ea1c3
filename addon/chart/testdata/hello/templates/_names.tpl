{{- define "hello.name" -}}{{ .Release.Name }}-agent{{- end -}}
