package manifest_test

import "testing"

func TestMergeConfigMapsAndSecrets(t *testing.T) {
	t.Parallel()
	const secretType = `type: kubernetes.io/service-account-token`
	runMergeCases(t, []mergeCase{
		{name: "data is the manifest's alone", kind: "v1 ConfigMap", required: `data: {a: "1"}`, live: `data: {a: "1", b: "2"}`,
			want: `data: {a: "1"}`},
		{name: "so is binaryData", kind: "v1 ConfigMap", required: `binaryData: {a: YQ==}`, live: `binaryData: {a: YQ==, b: YQ==}`,
			want: `binaryData: {a: YQ==}`},
		{name: "no data at all", kind: "v1 ConfigMap", required: ``, live: `{data: {a: "1"}, binaryData: {b: YQ==}}`,
			want: `{data: {}, binaryData: {}}`},
		{name: "null data", kind: "v1 ConfigMap", required: `data: null`, live: `data: {a: "1"}`, want: `data: {}`},
		{name: "nothing on both sides", kind: "v1 ConfigMap", required: `{data: {}, binaryData: null}`, live: ``},
		{name: "empty value is a value", kind: "v1 ConfigMap", required: `data: {a: "", b: x}`, live: `data: {b: x}`,
			want: `data: {a: "", b: x}`},
		{name: "empty value has to go", kind: "v1 ConfigMap", required: `data: {b: x}`, live: `data: {a: "", b: x}`, want: `data: {b: x}`},
		{name: "immutable stays", kind: "v1 ConfigMap", required: `data: {a: "1"}`, live: `{data: {a: "1"}, immutable: true}`},
		{name: "immutable is set", kind: "v1 ConfigMap", required: `{data: {a: "1"}, immutable: true}`, live: `data: {a: "1"}`,
			want: `{data: {a: "1"}, immutable: true}`},
		{name: "injected certificates stay", kind: "v1 ConfigMap",
			required: `metadata: {labels: {config.openshift.io/inject-trusted-cabundle: "true"}}`,
			live:     `{metadata: {labels: {config.openshift.io/inject-trusted-cabundle: "true"}}, data: {ca-bundle.crt: pem}}`},

		{name: "secret data is the manifest's alone", kind: "v1 Secret", required: `data: {a: YQ==}`, live: `data: {a: YQ==, b: YQ==}`,
			want: `data: {a: YQ==}`},
		{name: "stringData is data", kind: "v1 Secret", required: `stringData: {a: a}`, live: `data: {a: YQ==}`},
		{name: "stringData wins", kind: "v1 Secret", required: `{data: {a: Yg==, c: Yw==}, stringData: {a: a}}`,
			live: `data: {a: Yg==}`, want: `data: {a: YQ==, c: Yw==}`},
		{name: "line breaks in base64", kind: "v1 Secret", required: "data: {a: \"YWJj\\n\"}", live: `data: {a: YWJj}`},
		{name: "no data", kind: "v1 Secret", required: `type: Opaque`, live: `{type: Opaque, data: {a: YQ==}}`, want: `{type: Opaque, data: {}}`},
		{name: "type stays", kind: "v1 Secret", required: `data: {a: YQ==}`, live: `{type: Opaque, data: {a: YQ==}}`},
		{name: "token of a service account stays", kind: "v1 Secret", required: secretType, live: `{` + secretType +
			`, data: {token: YQ==, ca.crt: YQ==}}`},
		{name: "key no longer named next to a token", kind: "v1 Secret", required: secretType, lastApplied: `{` + secretType +
			`, stringData: {x: z}}`,
			live: `{` + secretType + `, data: {token: YQ==, x: eg==}}`, want: `{` + secretType + `, data: {token: YQ==}}`},
	})
}

func TestMergeServiceAccounts(t *testing.T) {
	t.Parallel()
	const kind = "v1 ServiceAccount"
	runMergeCases(t, []mergeCase{
		{name: "secrets of the server stay", kind: kind, required: ``, live: `{secrets: [{name: t}], imagePullSecrets: [{name: p}]}`},
		{name: "next to those of the manifest", kind: kind, required: `imagePullSecrets: [{name: a}]`, live: `imagePullSecrets: [{name: p}]`,
			want: `imagePullSecrets: [{name: p}, {name: a}]`},
		{name: "all there", kind: kind, required: `imagePullSecrets: [{name: a}]`, live: `imagePullSecrets: [{name: p}, {name: a}]`},
		{name: "one no longer named", kind: kind, required: `imagePullSecrets: [{name: a}]`,
			lastApplied: `imagePullSecrets: [{name: b}, {name: a}]`,
			live:        `imagePullSecrets: [{name: p}, {name: b}, {name: a}]`, want: `imagePullSecrets: [{name: p}, {name: a}]`},
		{name: "none named", kind: kind, required: `imagePullSecrets: []`, live: `imagePullSecrets: [{name: p}]`},
	})
}

func TestMergeWorkloads(t *testing.T) {
	t.Parallel()
	const kind = "apps/v1 Deployment"
	const liveDeployment = `
spec:
  replicas: 3
  revisionHistoryLimit: 10
  progressDeadlineSeconds: 600
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 25%}}
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      creationTimestamp: null
      labels: {app: web}
      annotations: {kubectl.kubernetes.io/restartedAt: now}
    spec:
      containers:
      - name: web
        image: nginx:1
        imagePullPolicy: IfNotPresent
        ports: [{containerPort: 80, protocol: TCP}]
        env: [{name: A}, {name: B, valueFrom: {fieldRef: {fieldPath: metadata.name, apiVersion: v1}}}]
        resources: {limits: {cpu: "1"}}
        livenessProbe: {httpGet: {path: /, port: 80, scheme: HTTP}, periodSeconds: 10}
        terminationMessagePath: /dev/termination-log
      volumes:
      - {name: v, configMap: {name: c, defaultMode: 420}}
      restartPolicy: Always
      dnsPolicy: ClusterFirst
      securityContext: {}
      schedulerName: default-scheduler
`
	template := func(spec string) string { return `spec: {template: {spec: ` + spec + `}}` }
	containers := func(fields string) string { return template(`{containers: [{name: web, ` + fields + `}]}`) }
	runMergeCases(t, []mergeCase{
		{name: "as a person writes it", kind: kind, live: liveDeployment, required: `
spec:
  minReadySeconds: 0
  paused: false
  strategy: {}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {creationTimestamp: null, labels: {app: web}}
    spec:
      hostNetwork: false
      initContainers: []
      nodeSelector: {}
      securityContext: {}
      volumes: [{name: v, configMap: {name: c}}]
      containers:
      - name: web
        image: nginx:1
        ports: [{containerPort: 80}]
        env: [{name: A, value: ""}, {name: B, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        resources: {limits: {cpu: 1000m}, requests: {}}
        livenessProbe: {httpGet: {path: /, port: 80}, initialDelaySeconds: 0}
        stdin: false
        command: []
`},
		{name: "false that is stored", kind: kind, required: containers(`securityContext: {allowPrivilegeEscalation: false, runAsUser: 0}`),
			live: containers(`image: x`), want: containers(`image: x, securityContext: {allowPrivilegeEscalation: false, runAsUser: 0}`)},
		{name: "sidecar that the manifest does not know", kind: kind, required: containers(`image: x`),
			live: template(`{containers: [{name: web, image: x}, {name: spy, image: y}]}`), want: containers(`image: x`)},
		{name: "env is set to empty", kind: kind, required: containers(`env: [{name: A, value: ""}]`),
			live: containers(`env: [{name: A, value: b}]`),
			want: containers(`env: [{name: A, value: ""}]`)},
		{name: "env from a field", kind: kind, required: containers(`env: [{name: A, valueFrom: {fieldRef: {fieldPath: x}}}]`),
			live: containers(`env: [{name: A, value: b}]`), want: containers(`env: [{name: A, valueFrom: {fieldRef: {fieldPath: x}}}]`)},
		{name: "env from another source", kind: kind, required: containers(`env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]`),
			live: containers(`env: [{name: A, valueFrom: {fieldRef: {fieldPath: x, apiVersion: v1}}}]`),
			want: containers(`env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]`)},
		{name: "other probe", kind: kind, required: containers(`livenessProbe: {exec: {command: [a]}}`),
			live: containers(`livenessProbe: {httpGet: {port: 80}, periodSeconds: 10}`),
			want: containers(`livenessProbe: {exec: {command: [a]}, periodSeconds: 10}`)},
		{name: "ports by name", kind: kind, required: containers(`ports: [{name: http, containerPort: 81}]`),
			live: containers(`ports: [{name: http, containerPort: 80, protocol: TCP}]`),
			want: containers(`ports: [{name: http, containerPort: 81, protocol: TCP}]`)},
		{name: "ports by number and protocol", kind: kind,
			required: containers(`ports: [{containerPort: 53, protocol: UDP}, {containerPort: 53}]`),
			live:     containers(`ports: [{containerPort: 53, protocol: TCP, d: 1}, {containerPort: 53, protocol: UDP, d: 2}]`),
			want:     containers(`ports: [{containerPort: 53, protocol: UDP, d: 2}, {containerPort: 53, protocol: TCP, d: 1}]`)},
		{name: "volume of another source", kind: kind, required: template(`{volumes: [{name: v, emptyDir: {}}]}`),
			live: template(`{volumes: [{name: v, configMap: {name: c, defaultMode: 420}}]}`),
			want: template(`{volumes: [{name: v, emptyDir: {}}]}`)},
		{name: "volume without source", kind: kind, required: template(`{volumes: [{name: v}]}`),
			live: template(`{volumes: [{name: v, emptyDir: {}}]}`)},
		{name: "volume size", kind: kind, required: template(`{volumes: [{name: v, emptyDir: {sizeLimit: 1024Mi}}]}`),
			live: template(`{volumes: [{name: v, emptyDir: {sizeLimit: 1Gi}}]}`)},
		{name: "other strategy", kind: kind, required: `spec: {strategy: {type: Recreate}}`,
			live: `spec: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1}}}`, want: `spec: {strategy: {type: Recreate}}`},
		{name: "same strategy", kind: kind, required: `spec: {strategy: {type: RollingUpdate}}`,
			live: `spec: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1}}}`},
		{name: "selector is the manifest's alone", kind: kind, required: `spec: {selector: {matchLabels: {a: b}}}`,
			live: `spec: {selector: {matchLabels: {a: b, c: d}}}`, want: `spec: {selector: {matchLabels: {a: b}}}`},
		{name: "node selector too", kind: kind, required: template(`{nodeSelector: {a: ""}}`), live: template(`{nodeSelector: {b: ""}}`),
			want: template(`{nodeSelector: {a: ""}}`)},
		{name: "empty label is a label", kind: kind, required: `spec: {template: {metadata: {labels: {a: ""}}}}`,
			live: `spec: {template: {metadata: {labels: {b: c}}}}`,
			want: `spec: {template: {metadata: {labels: {a: "", b: c}}}}`},
		{name: "replicas of an autoscaler", kind: kind, required: `spec: {paused: true}`, live: `spec: {replicas: 7, paused: true}`},
		{name: "labels of a job stay", kind: "batch/v1 Job", required: `spec: {template: {metadata: {labels: {a: b}}}}`,
			live: `spec: {selector: {matchLabels: {uid: x}}, template: {metadata: {labels: {a: b, uid: x}}}}`},
		{name: "quantities of an autoscaler", kind: "autoscaling/v2 HorizontalPodAutoscaler",
			required: `spec: {metrics: [{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue, averageValue: 1000m}}}]}`,
			live:     `spec: {metrics: [{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue, averageValue: "1"}}}]}`},
		{name: "the tolerance of an autoscaler", kind: "autoscaling/v2 HorizontalPodAutoscaler",
			required: `spec: {behavior: {scaleUp: {tolerance: 0.05}, scaleDown: {tolerance: "0"}}}`,
			live:     `spec: {behavior: {scaleUp: {tolerance: 50m}, scaleDown: {tolerance: "0"}}}`},
		{name: "another tolerance", kind: "autoscaling/v2 HorizontalPodAutoscaler", required: `spec: {behavior: {scaleUp: {tolerance: 0.06}}}`,
			live: `spec: {behavior: {scaleUp: {tolerance: 50m}}}`, want: `spec: {behavior: {scaleUp: {tolerance: 0.06}}}`},
		{name: "a priority level that has no limits", kind: "flowcontrol.apiserver.k8s.io/v1 PriorityLevelConfiguration",
			required: `spec: {exempt: {}}`, live: `spec: {}`, want: `spec: {exempt: {}}`},
	})
}

// A Pod can hardly be changed once it runs, so what admission added must not look like a difference.
func TestMergePods(t *testing.T) {
	t.Parallel()
	const kind = "v1 Pod"
	const livePod = `
spec:
  containers:
  - name: hello
    image: busybox
    volumeMounts: [{mountPath: /mine, name: mine}, {mountPath: /var/run/secrets, name: token}]
  tolerations: [{key: not-ready, operator: Exists}, {key: a, operator: Exists, effect: NoExecute}]
  volumes: [{name: mine, emptyDir: {}}, {name: token, projected: {}}]
  nodeSelector: {a: b, c: d}
  nodeName: n1
`
	const want = `
spec:
  containers:
  - name: hello
    image: busybox:2
    volumeMounts: [{mountPath: /mine, name: mine}, {mountPath: /var/run/secrets, name: token}]
  tolerations: [{key: not-ready, operator: Exists}, {key: a, operator: Exists, effect: NoExecute}]
  volumes: [{name: mine, emptyDir: {}}, {name: token, projected: {}}]
  nodeSelector: {a: b, c: d}
  nodeName: n1
`
	required := func(image string) string {
		return `spec: {containers: [{name: hello, image: "` + image + `", volumeMounts: [{mountPath: /mine, name: mine}]}],
			tolerations: [{key: a, operator: Exists}], volumes: [{name: mine, emptyDir: {}}], nodeSelector: {a: b}}`
	}
	runMergeCases(t, []mergeCase{
		{name: "unchanged", kind: kind, required: required("busybox"), live: livePod},
		{name: "another image", kind: kind, required: required("busybox:2"), live: livePod, want: want},
		{name: "another toleration", kind: kind, required: `spec: {tolerations: [{key: b}]}`, live: `spec: {tolerations: [{key: a}]}`,
			want: `spec: {tolerations: [{key: b}]}`},
		{name: "other arguments", kind: kind, required: `spec: {containers: [{name: a, args: [x]}]}`,
			live: `spec: {containers: [{name: a, args: [x, y]}]}`,
			want: `spec: {containers: [{name: a, args: [x]}]}`},
	})
}

func TestMergeServices(t *testing.T) {
	t.Parallel()
	const kind = "v1 Service"
	const live = `
spec:
  clusterIP: 10.0.0.1
  clusterIPs: [10.0.0.1]
  type: NodePort
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080, protocol: TCP, nodePort: 30080}]
`
	runMergeCases(t, []mergeCase{
		{name: "what the server assigned stays", kind: kind, live: live,
			required: `spec: {clusterIP: "", type: NodePort, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080, nodePort: 0}]}`},
		{name: "port number changes, node port stays", kind: kind, live: `spec: {ports: [{name: http, port: 80, nodePort: 30080}]}`,
			required: `spec: {ports: [{name: http, port: 81}]}`, want: `spec: {ports: [{name: http, port: 81, nodePort: 30080}]}`},
		{name: "one port without name", kind: kind, live: `spec: {ports: [{port: 80, protocol: TCP, nodePort: 30080}]}`,
			required: `spec: {ports: [{port: 80}]}`},
		{name: "port gets a name", kind: kind, live: `spec: {ports: [{port: 80, protocol: TCP, nodePort: 30080}]}`,
			required: `spec: {ports: [{name: http, port: 80}]}`, want: `spec: {ports: [{name: http, port: 80, protocol: TCP, nodePort: 30080}]}`},
		{name: "selector gained a key", kind: kind, live: `spec: {selector: {app: web, x: z}}`, required: `spec: {selector: {app: web}}`,
			want: `spec: {selector: {app: web}}`},
	})
}

func TestMergeRBAC(t *testing.T) {
	t.Parallel()
	const role, binding = "rbac.authorization.k8s.io/v1 ClusterRole", "rbac.authorization.k8s.io/v1 ClusterRoleBinding"
	const rule = `{apiGroups: [""], resources: [pods], verbs: [get]}`
	runMergeCases(t, []mergeCase{
		{name: "same rules", kind: role, required: `rules: [` + rule + `]`, live: `rules: [` + rule + `]`},
		{name: "rule of another writer", kind: role, required: `rules: [` + rule + `]`, live: `rules: [` + rule + `, {verbs: ["*"]}]`,
			want: `rules: [` + rule + `]`},
		{name: "rule was narrowed", kind: role, required: `rules: [` + rule + `]`,
			live: `rules: [{apiGroups: [""], resources: [pods], verbs: [get], resourceNames: [x]}]`, want: `rules: [` + rule + `]`},
		{name: "aggregated rules are a controller's", kind: role,
			required: `{aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}, rules: []}`,
			live:     `{aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}, rules: [` + rule + `]}`},
		{name: "subjects", kind: binding, required: `{subjects: [{kind: User, name: a}], roleRef: {kind: ClusterRole, name: r}}`,
			live: `{subjects: [{kind: User, name: a, apiGroup: rbac.authorization.k8s.io}], roleRef: {kind: ClusterRole, name: r, apiGroup: rbac.authorization.k8s.io}}`},
		{name: "other subject", kind: binding, required: `subjects: [{kind: User, name: a}]`,
			live: `subjects: [{kind: User, name: b, apiGroup: rbac.authorization.k8s.io}]`, want: `subjects: [{kind: User, name: a}]`},
		{name: "other role", kind: binding, required: `roleRef: {kind: ClusterRole, name: r}`, live: `roleRef: {kind: ClusterRole, name: s}`,
			want: `roleRef: {kind: ClusterRole, name: r}`},
	})
}

func TestMergeDefinitions(t *testing.T) {
	t.Parallel()
	const kind = "apiextensions.k8s.io/v1 CustomResourceDefinition"
	version := func(schema, more string) string {
		return `spec: {versions: [{name: v1, schema: {openAPIV3Schema: ` + schema + `}` + more + `}]}`
	}
	runMergeCases(t, []mergeCase{
		{name: "defaults of the server", kind: kind,
			required: `spec: {preserveUnknownFields: false, names: {kind: A, plural: as}, versions: [{name: v1, additionalPrinterColumns: [{name: x, priority: 0}]}]}`,
			live:     `spec: {conversion: {strategy: None}, names: {kind: A, plural: as, singular: a, listKind: AList}, versions: [{name: v1, additionalPrinterColumns: [{name: x}]}]}`},
		{name: "schema is the manifest's alone", kind: kind, required: version(`{properties: {a: {type: string}}}`, ``),
			live: version(`{properties: {a: {type: string, maxLength: 5}, b: {}}}`, `, d: 1`),
			want: version(`{properties: {a: {type: string}}}`, `, d: 1`)},
		{name: "schema as a generator writes it", kind: kind,
			required: version(`{description: "", properties: {a: {nullable: false, type: string, enum: []}}}`, ``),
			live:     version(`{properties: {a: {type: string}}}`, ``)},
		{name: "default of a field", kind: kind, required: version(`{properties: {a: {default: ""}}}`, ``),
			live: version(`{properties: {a: {}}}`, ``),
			want: version(`{properties: {a: {default: ""}}}`, ``)},
		{name: "field without schema", kind: kind, required: version(`{properties: {a: {}}}`, ``), live: version(`{properties: {}}`, ``),
			want: version(`{properties: {a: {}}}`, ``)},
		{name: "status becomes a subresource", kind: kind, required: version(`{}`, `, subresources: {status: {}}`), live: version(`{}`, ``),
			want: version(`{}`, `, subresources: {status: {}}`)},
		{name: "conversion is turned off", kind: kind, required: `spec: {conversion: {strategy: None}}`,
			live: `spec: {conversion: {strategy: Webhook, webhook: {a: b}}}`,
			want: `spec: {conversion: {strategy: None}}`},
		{name: "injected certificate stays", kind: "admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration",
			required: `webhooks: [{name: a, clientConfig: {service: {name: s}}, failurePolicy: Fail}]`,
			live:     `webhooks: [{name: a, clientConfig: {service: {name: s, port: 443}, caBundle: YQ==}, failurePolicy: Ignore}]`,
			want:     `webhooks: [{name: a, clientConfig: {service: {name: s, port: 443}, caBundle: YQ==}, failurePolicy: Fail}]`},
	})
}

func TestMergePolicies(t *testing.T) {
	t.Parallel()
	const policy = "networking.k8s.io/v1 NetworkPolicy"
	runMergeCases(t, []mergeCase{
		{name: "ports get a protocol", kind: policy, required: `spec: {podSelector: {}, ingress: [{ports: [{port: 80}]}]}`,
			live: `spec: {podSelector: {}, ingress: [{ports: [{port: 80, protocol: TCP}]}], policyTypes: [Ingress]}`},
		{name: "allow all was narrowed", kind: policy, required: `spec: {ingress: [{}]}`, live: `spec: {ingress: [{from: [{podSelector: {}}]}]}`,
			want: `spec: {ingress: [{}]}`},
		{name: "all pods were narrowed", kind: policy, required: `spec: {podSelector: {}}`, live: `spec: {podSelector: {matchLabels: {a: b}}}`,
			want: `spec: {podSelector: {}}`},
		{name: "peer of all pods", kind: policy, required: `spec: {egress: [{to: [{podSelector: {}}]}]}`,
			live: `spec: {egress: [{to: [{namespaceSelector: {}}]}]}`,
			want: `spec: {egress: [{to: [{podSelector: {}}]}]}`},
		{name: "disruption budget of the other kind", kind: "policy/v1 PodDisruptionBudget", required: `spec: {minAvailable: 1}`,
			live: `spec: {maxUnavailable: 1}`, want: `spec: {minAvailable: 1}`},
		{name: "quota", kind: "v1 ResourceQuota", required: `spec: {hard: {cpu: 2000m, pods: 10}}`, live: `spec: {hard: {cpu: "2", pods: "10"}}`},
		{name: "limit range", kind: "v1 LimitRange",
			required: `spec: {limits: [{type: Container, default: {cpu: 1000m}, max: {memory: 1024Mi}}]}`,
			live:     `spec: {limits: [{type: Container, default: {cpu: "1"}, defaultRequest: {cpu: "1"}, max: {memory: 1Gi}}]}`},
		{name: "volume claim", kind: "v1 PersistentVolumeClaim", required: `spec: {resources: {requests: {storage: 1024Mi}}}`,
			live: `spec: {resources: {requests: {storage: 1Gi}}, volumeName: x, storageClassName: y}`},
	})
}
