{{/* Names are fixed: the accounts, policies and objects of podpool are in kube-system, once per cluster. */}}

{{- define "podpool.labels" -}}
app.kubernetes.io/name: podpool
app.kubernetes.io/part-of: podpool
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "podpool.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Fields that every container has. Call with (dict "root" $ "user" UID "add" CAPABILITIES). */}}
{{- define "podpool.container" -}}
image: {{ include "podpool.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  runAsUser: {{ .user }}
  runAsGroup: {{ .user }}
  runAsNonRoot: {{ ne (int .user) 0 }}
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
    {{- with .add }}
    add: {{ toJson . }}
    {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Fields that every Pod in the host network has. */}}
{{- define "podpool.pod" -}}
hostNetwork: true
dnsPolicy: Default
enableServiceLinks: true
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "podpool.tolerateAll" -}}
tolerations:
  - operator: Exists
{{- end }}

{{/* For components that must run before any node has a network. */}}
{{- define "podpool.tolerateNotReady" -}}
tolerations:
  - {key: node.kubernetes.io/not-ready, operator: Exists}
  - {key: node.kubernetes.io/network-unavailable, operator: Exists}
  - {key: node.cloudprovider.kubernetes.io/uninitialized, operator: Exists}
  - {key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 60}
{{- end }}

{{- define "podpool.env" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: PODPOOL_LOG_LEVEL
  value: {{ .Values.logLevel }}
{{- with .Values.kubernetes.host }}
- name: KUBERNETES_SERVICE_HOST
  value: {{ . | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ $.Values.kubernetes.port | quote }}
{{- end }}
{{- end }}

{{/* Address of a health port: the node's with metrics, else loopback. Call with (dict "root" $ "port" PORT). */}}
{{- define "podpool.healthListen" -}}
{{ if .root.Values.metrics.enabled }}$(POD_IP){{ else }}127.0.0.1{{ end }}:{{ .port }}
{{- end }}

{{/* Probes of a health port. `startup` is how often the process may miss the first one, every 5 s. */}}
{{- define "podpool.probes" -}}
{{- $host := ternary "" "host: 127.0.0.1, " .root.Values.metrics.enabled -}}
startupProbe:
  httpGet: { {{- $host }}path: /livez, port: {{ .port }}}
  periodSeconds: 5
  failureThreshold: {{ .startup | default 24 }}
livenessProbe:
  httpGet: { {{- $host }}path: /livez, port: {{ .port }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: { {{- $host }}path: /readyz, port: {{ .port }}}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- define "podpool.settings" -}}
{{- $found := list -}}
{{- range $name, $value := .Values.settings -}}
{{- $found = append $found (printf "%s=%v" $name $value) -}}
{{- end -}}
{{- join "," $found -}}
{{- end }}

{{- define "podpool.hasLedger" -}}
{{ if ne .Values.ledger.mode "none" }}true{{ end }}
{{- end }}

{{- define "podpool.runsLedger" -}}
{{ if has .Values.ledger.mode (list "sqlite" "postgresql") }}true{{ end }}
{{- end }}

{{- define "podpool.ledgerURL" -}}
{{- $ledger := .Values.ledger -}}
{{- if eq $ledger.mode "external" -}}
{{ $ledger.url }}
{{- else -}}
https://{{ $ledger.host | default "$(PODPOOL_LEDGER_SERVICE_HOST)" }}:7780
{{- end -}}
{{- end }}

{{- define "podpool.serverName" -}}
{{- $ledger := .Values.ledger -}}
{{- if or $ledger.tls.serverName (eq $ledger.mode "external") -}}
{{ $ledger.tls.serverName }}
{{- else -}}
podpool-ledger.kube-system.svc
{{- end -}}
{{- end }}

{{/* Options of the agents' CNI profile. */}}
{{- define "podpool.cniOptions" -}}
{{- $network := .Values.network -}}
{{- $found := list -}}
{{- if eq $network.profile "bridge" -}}
{{- $found = append $found (printf "bridge=%s" $network.bridge) -}}
{{- else if has $network.profile (list "macvlan" "ipvlan") -}}
{{- $found = append $found (printf "master=%s" $network.master) -}}
{{- end -}}
{{- if $network.mtu -}}
{{- $found = append $found (printf "mtu=%d" (int $network.mtu)) -}}
{{- end -}}
{{- join "," $found -}}
{{- end }}

{{/* Annotations of what runs after the release was deleted, and is deleted itself when it has succeeded. */}}
{{- define "podpool.uninstallHook" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
