package installer

import "github.com/capstan-io/capstan/internal/machinery/fleet"

// deployment runs the operator.
func (o *operator) deployment() object {
	return object{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(o.name, fleet.NamespaceOperators, o.name),
		"spec": object{
			"replicas": o.ReplicaCount,
			"selector": selector(o.name),
			"template": object{
				"metadata": object{
					"annotations": object{"target.workload.openshift.io/management": `{"effect": "PreferredDuringScheduling"}`},
					"labels": object{
						"app": o.name, "app.kubernetes.io/name": o.name, "app.kubernetes.io/instance": o.name,
					},
				},
				"spec": o.pod(),
			},
		},
	}
}

func (o *operator) pod() object {
	pod := object{
		"serviceAccountName": o.name,
		"securityContext":    o.PodSecurityContext,
		"containers":         []any{o.container()},
		"volumes":            append([]any{object{"name": "tmp", "emptyDir": object{}}}, o.volumes...),
		"affinity":           o.affinity(),
	}
	setFields(pod, object{
		"priorityClassName": o.PriorityClassName, "hostAliases": o.hostAliases, "nodeSelector": o.NodeSelector, "tolerations": o.Tolerations,
	})
	return pod
}

func (o *operator) container() object {
	probe := func(timing object) object {
		timing["httpGet"] = object{"path": "/healthz", "scheme": "HTTPS", "port": "https"}
		return timing
	}
	return object{
		"name":            o.containerName,
		"image":           o.image,
		"imagePullPolicy": o.Images.ImagePullPolicy,
		"args":            o.args,
		"env":             append(o.env, fieldVariable("POD_NAME", "metadata.name"), fieldVariable("POD_NAMESPACE", "metadata.namespace")),
		"ports":           []any{object{"name": "https", "containerPort": int64(8443)}},
		"securityContext": o.SecurityContext,
		// Every second until the operator runs, so that nobody waits for the first of the other probes; five minutes on a busy node.
		"startupProbe":   probe(object{"periodSeconds": int64(1), "failureThreshold": int64(300)}),
		"livenessProbe":  probe(object{"periodSeconds": int64(10)}),
		"readinessProbe": probe(object{}),
		"resources":      o.Resources,
		"volumeMounts":   append([]any{object{"name": "tmp", "mountPath": "/tmp"}}, o.volumeMounts...),
	}
}

func variable(name, value string) object { return object{"name": name, "value": value} }

func fieldVariable(name, path string) object {
	return object{"name": name, "valueFrom": object{"fieldRef": object{"fieldPath": path}}}
}

// affinity has replicas prefer different zones and nodes, unless the values have another.
func (o *operator) affinity() object {
	if len(o.Affinity) > 0 {
		return o.Affinity
	}
	apart := func(weight int64, topology string) object {
		return object{"weight": weight, "podAffinityTerm": object{"topologyKey": topology, "labelSelector": selector(o.name)}}
	}
	return object{"podAntiAffinity": object{"preferredDuringSchedulingIgnoredDuringExecution": []any{
		apart(70, "topology.kubernetes.io/zone"), apart(30, "kubernetes.io/hostname"),
	}}}
}

// setFields sets those fields that are not empty.
func setFields(to, fields object) {
	for name, value := range fields {
		switch value := value.(type) {
		case string:
			if value == "" {
				continue
			}
		case object:
			if len(value) == 0 {
				continue
			}
		case []any:
			if len(value) == 0 {
				continue
			}
		}
		to[name] = value
	}
}
