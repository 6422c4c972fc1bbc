{{/* Refuse what the schema cannot: each message names the value and what to do. */}}
{{- define "podpool.validate" -}}
{{- $network := .Values.network -}}
{{- $ledger := .Values.ledger -}}
{{- if ne .Release.Namespace "kube-system" -}}
{{- fail (printf "podpool is installed in the namespace kube-system, not in %s: its objects and admission policies are there; add --namespace kube-system" .Release.Namespace) -}}
{{- end -}}
{{- if not $network.profile -}}
{{- fail "network.profile is required: bridge, macvlan, ipvlan, routed, azure or custom names the network that carries the Pods, none leaves it to another plugin; docs/install.md says which network needs which" -}}
{{- end -}}
{{- if and (eq $network.profile "bridge") (not $network.bridge) -}}
{{- fail "network.bridge is required with network.profile bridge: name the bridge of the nodes that has their uplink as a port" -}}
{{- end -}}
{{- if and (has $network.profile (list "macvlan" "ipvlan")) (not $network.master) -}}
{{- fail (printf "network.master is required with network.profile %s: name the interface of the nodes that carries the Pods" $network.profile) -}}
{{- end -}}
{{- if and $network.proxyUplink (ne $network.profile "routed") -}}
{{- fail (printf "network.proxyUplink has no effect with network.profile %s: use network.profile routed, or remove it" $network.profile) -}}
{{- end -}}
{{- if eq $network.profile "custom" -}}
{{- $parsed := $network.conflist | default "{}" | fromJson -}}
{{- if or (hasKey $parsed "Error") (not $parsed.plugins) (not $parsed.name) -}}
{{- fail "network.conflist is required with network.profile custom: a CNI configuration in JSON with name, cniVersion and plugins" -}}
{{- end -}}
{{- else if $network.conflist -}}
{{- fail (printf "network.conflist has no effect with network.profile %s: use network.profile custom, or remove it" $network.profile) -}}
{{- end -}}
{{- if eq $ledger.mode "none" -}}
{{- if ne $network.profile "none" -}}
{{- fail (printf "ledger.mode none means secondary networks only, but network.profile is %s: use network.profile none, or a ledger" $network.profile) -}}
{{- end -}}
{{- if not .Values.slices.enabled -}}
{{- fail "slices.enabled must be true with ledger.mode none: otherwise podpool has nothing to serve" -}}
{{- end -}}
{{- else if not .Values.controller.subnet -}}
{{- fail "controller.subnet is required with a ledger: NETWORK.SUBNET, the subnet of Nodes without a subnet label" -}}
{{- end -}}
{{- if and (gt (int $ledger.replicas) 1) (ne $ledger.mode "postgresql") -}}
{{- fail (printf "ledger.replicas %d needs ledger.mode postgresql: a SQLite file has one writer" (int $ledger.replicas)) -}}
{{- end -}}
{{- if and (eq $ledger.mode "postgresql") (not $ledger.postgresql.secret) -}}
{{- fail "ledger.postgresql.secret is required with ledger.mode postgresql: a Secret whose key url is the URL of the database" -}}
{{- end -}}
{{- if and (eq $ledger.mode "external") (not $ledger.url) -}}
{{- fail "ledger.url is required with ledger.mode external" -}}
{{- end -}}
{{- if and (eq $ledger.mode "external") .Values.ledger.tokens.generate -}}
{{- fail "ledger.tokens.generate must be false with ledger.mode external: create the Secret ledger.tokens.clusterSecret from the output of `podpool ledger token create`" -}}
{{- end -}}
{{- if and (eq $ledger.mode "external") (ne $ledger.tls.source "secret") -}}
{{- fail "ledger.tls.source must be secret with ledger.mode external: ledger.tls.secret has the ca.crt of its certificate" -}}
{{- end -}}
{{- if and (eq $ledger.mode "sqlite") (eq $ledger.sqlite.storage "hostPath") (not $ledger.nodeSelector) -}}
{{- fail "ledger.nodeSelector is required with ledger.sqlite.storage hostPath: on another node the ledger would start with an empty database" -}}
{{- end -}}
{{- if and (eq $ledger.tls.source "certManager") (not $ledger.tls.issuer) -}}
{{- fail "ledger.tls.issuer is required with ledger.tls.source certManager" -}}
{{- end -}}
{{- if and .Values.metrics.podMonitor (not .Values.metrics.enabled) -}}
{{- fail "metrics.podMonitor needs metrics.enabled true: otherwise metrics are on the nodes' loopback only" -}}
{{- end -}}
{{- include "podpool.validateChange" . -}}
{{- end }}

{{/* Refuse changes that would lose the ledger's data or the agents' journals; the live objects say what was installed. */}}
{{- define "podpool.validateChange" -}}
{{- $ledger := .Values.ledger -}}
{{- $asked := printf "%s/%s" $ledger.mode (eq $ledger.mode "sqlite" | ternary $ledger.sqlite.storage "") | trimSuffix "/" -}}
{{- $installed := lookup "v1" "ConfigMap" "kube-system" "podpool-installed" -}}
{{- with $installed.data -}}
{{- if ne .ledger $asked -}}
{{- fail (printf "ledger.mode %s cannot become %s by an upgrade: the new ledger would grant addresses that Pods have; move the data (`podpool ledger backup`, `podpool ledger restore`) and delete the ConfigMap podpool-installed, or uninstall first" .ledger $asked) -}}
{{- end -}}
{{- if ne .stateDir $.Values.agent.stateDir -}}
{{- fail (printf "agent.stateDir %s cannot become %s by an upgrade: the agents would lose their journals" .stateDir $.Values.agent.stateDir) -}}
{{- end -}}
{{- end -}}
{{- end }}
