{{/*
Secrets that Helm generates once and every upgrade keeps: `lookup` finds them in the cluster. Without a cluster, as in
`helm template` without --dry-run=server, each rendering has others. They are kept in .Values for this rendering, so that
the Secret and the checksum of it agree.
*/}}
{{- define "podpool.generateTLS" -}}
{{- if not (hasKey .Values "generatedTLS") -}}
{{- $names := list (include "podpool.serverName" .) "podpool-ledger" "localhost" -}}
{{- $addresses := list "127.0.0.1" "::1" -}}
{{- $found := lookup "v1" "Secret" "kube-system" .Values.ledger.tls.secret -}}
{{- if $found -}}
{{- $_ := set .Values "generatedTLS" (dict "ca" (index $found.data "ca.crt" | b64dec) "crt" (index $found.data "tls.crt" | b64dec) "key" (index $found.data "tls.key" | b64dec)) -}}
{{- else -}}
{{- $ca := genCA "podpool-ledger-ca" 3650 -}}
{{- $made := genSignedCert (include "podpool.serverName" .) $addresses $names 3650 $ca -}}
{{- $_ := set .Values "generatedTLS" (dict "ca" $ca.Cert "crt" $made.Cert "key" $made.Key) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* What changes when the controller has to read another CA. */}}
{{- define "podpool.ca" -}}
{{- if eq .Values.ledger.tls.source "generated" -}}
{{- include "podpool.generateTLS" . -}}
{{ .Values.generatedTLS.ca }}
{{- else -}}
{{ .Values.ledger.tls.secret }}
{{- end -}}
{{- end }}

{{/* The token in a Secret, or a new one. Call with (dict "secret" NAME). */}}
{{- define "podpool.token" -}}
{{- $found := lookup "v1" "Secret" "kube-system" .secret -}}
{{- if $found -}}
{{ index $found.data "token" | b64dec }}
{{- else -}}
podpool_{{ randAlphaNum 64 | sha256sum | trunc 12 }}_{{ randAlphaNum 64 | sha256sum }}
{{- end -}}
{{- end }}
