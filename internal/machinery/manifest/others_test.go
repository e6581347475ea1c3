package manifest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// WK-05: what a manifest does not name any more stays while others have it, wherever in the object it is; all else goes. What is one value
// goes if others have no more than a part of it.
func TestLeaveToOthers(t *testing.T) {
	t.Parallel()
	const (
		container       = `spec: {template: {spec: {containers: [{name: proxy, image: p}, {name: web, image: w`
		securityContext = `spec: {template: {spec: {securityContext: {`
		volume          = `spec: {template: {spec: {volumes: [{name: v, `
	)
	for name, test := range map[string]struct {
		kind, last, required, live string
		// others are the fields that others have.
		others []string
		want   string
	}{
		"a field": {"apps/v1 Deployment", `spec: {replicas: 3, paused: true}`, `spec: {}`, `spec: {replicas: 12, paused: true}`,
			[]string{"spec.replicas"}, `spec: {replicas: 12}`},
		"a field that nobody else has": {"apps/v1 Deployment", `spec: {replicas: 3}`, `spec: {}`, `spec: {replicas: 3}`, nil, `spec: {}`},
		"a field that is named": {"apps/v1 Deployment", `spec: {replicas: 3}`, `spec: {replicas: 4}`, `spec: {replicas: 12}`,
			[]string{"spec.replicas"}, `spec: {replicas: 4}`},
		"a part of a field": {"apps/v1 Deployment", securityContext + `runAsUser: 1, fsGroup: 2}}}}`, `spec: {}`,
			securityContext + `runAsUser: 1, fsGroup: 2, runAsGroup: 3}}}}`, []string{"spec.template.spec.securityContext.fsGroup"},
			securityContext + `fsGroup: 2, runAsGroup: 3}}}}`},
		"a part that was never named": {"apps/v1 Deployment", securityContext + `runAsUser: 1}}}}`, `spec: {template: {}}`,
			securityContext + `runAsUser: 1, fsGroup: 2}}}}`, []string{"spec.template.spec.securityContext.fsGroup"},
			securityContext + `fsGroup: 2}}}}`},
		"a part of a custom resource": {"example.com/v1 Widget", `spec: {a: {b: {c: 1, d: 2}, e: 3}, f: {g: 4}}`, `{}`,
			`spec: {a: {b: {c: 1, d: 2}, e: 3}, f: {g: 4}, h: 5}`, []string{"spec.a.b.d"}, `spec: {a: {b: {d: 2}}, h: 5}`},
		"a part of one kind of value": {"apps/v1 Deployment", `spec: {strategy: {rollingUpdate: {maxSurge: 1}}}`, `spec: {}`,
			`spec: {strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 2}}}`, []string{"spec.strategy.rollingUpdate.maxUnavailable"},
			`spec: {}`},
		"a part of an alternative": {"apps/v1 Deployment", container + `, livenessProbe: {httpGet: {path: a, port: 1}}}]}}}`,
			container + `}]}}}`,
			container + `, livenessProbe: {httpGet: {path: a, port: 1}, periodSeconds: 10}}]}}}`,
			[]string{"spec.template.spec.containers[1].livenessProbe.httpGet.port"}, container + `}]}}}`},
		"a part of a volume": {"apps/v1 Deployment", volume + `configMap: {name: a, optional: true}}]}}}`,
			volume + `secret: {secretName: a}}]}}}`,
			volume + `configMap: {name: a, optional: true}}]}}}`, []string{"spec.template.spec.volumes[0].configMap.optional"},
			volume + `secret: {secretName: a}}]}}}`},
		"a part of a selector": {"v1 Service", `spec: {selector: {a: "1", b: "2"}}`, `spec: {}`, `spec: {selector: {a: "1", b: "2"}}`,
			[]string{"spec.selector.b"}, `spec: {}`},
		"all of a selector": {"v1 Service", `spec: {selector: {a: "1"}}`, `spec: {}`, `spec: {selector: {a: "1"}}`, []string{"spec.selector"},
			`spec: {selector: {a: "1"}}`},
		"an element of a list": {"apps/v1 Deployment", volume + `secret: {secretName: a}}]}}}`, `spec: {template: {spec: {}}}`,
			volume + `secret: {secretName: a}}]}}}`, []string{"spec.template.spec.volumes[0].name"}, `spec: {template: {spec: {}}}`},
		"a list of a ServiceAccount that nobody else applies": {"v1 ServiceAccount", `imagePullSecrets: [{name: a}]`, `{}`,
			`imagePullSecrets: [{name: a}, {name: added}]`, nil, `{}`},
		"a field of an element": {"apps/v1 Deployment", container + `, command: [a], args: [b]}]}}}`, container + `}]}}}`,
			container + `, command: [a], args: [b]}]}}}`, []string{"spec.template.spec.containers[1].args"}, container + `, args: [b]}]}}}`},
		"an element of a list that others add to": {"v1 ServiceAccount", `secrets: [{name: a}, {name: b}]`, `secrets: [{name: c}]`,
			`secrets: [{name: b}, {name: a}, {name: c}]`, []string{"secrets[1].name"}, `secrets: [{name: a}, {name: c}]`},
		"an element of a list with one owner": {"apps/v1 Deployment", container + `}]}}}`,
			`spec: {template: {spec: {containers: [{name: web, image: w}]}}}`, container + `}]}}}`,
			[]string{"spec.template.spec.containers[0].image"}, `spec: {template: {spec: {containers: [{name: web, image: w}]}}}`},
		"labels of a template": {"apps/v1 Deployment", `spec: {template: {metadata: {labels: {a: "1", b: "1"}}}}`, `spec: {}`,
			`spec: {template: {metadata: {labels: {a: "1", b: "1", c: "1"}}}}`,
			[]string{"spec.template.metadata.labels.b", "spec.template.metadata.labels.c"},
			`spec: {template: {metadata: {labels: {b: "1", c: "1"}}}}`},
		"labels of a template that is named": {"apps/v1 Deployment", `spec: {template: {metadata: {labels: {a: "1", b: "1"}}}}`,
			`spec: {template: {}}`, `spec: {template: {metadata: {labels: {a: "1", b: "1", c: "1"}}}}`,
			[]string{"spec.template.metadata.labels.b", "spec.template.metadata.labels.c"},
			`spec: {template: {metadata: {labels: {b: "1", c: "1"}}}}`},
		"a value beside which there is no other": {"v1 Pod", `spec: {containers: [{name: a, env: [{name: E, value: v}]}]}`,
			`spec: {containers: [{name: a, env: [{name: E, valueFrom: {fieldRef: {fieldPath: p}}}]}]}`,
			`spec: {containers: [{name: a, env: [{name: E, value: v}]}]}`, []string{"spec.containers[0].env[0].value"},
			`spec: {containers: [{name: a, env: [{name: E, valueFrom: {fieldRef: {fieldPath: p}}}]}]}`},
		"a custom resource": {"example.com/v1 Widget", `spec: {size: 1, color: red}`, `spec: {}`, `spec: {size: 2, color: red}`,
			[]string{"spec.size"}, `spec: {size: 2}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			required, live, last := object(t, test.kind, test.required), object(t, test.kind, test.live), object(t, test.kind, test.last)
			isOthers := func(field manifest.Field) bool {
				for _, other := range test.others {
					if strings.HasPrefix(other+".", field.String()+".") || strings.HasPrefix(other, field.String()+"[") {
						return true
					}
				}
				return false
			}
			merged, _ := manifest.Merge(required, live, manifest.LeaveToOthers(required, live, last, isOthers))
			if diff := cmp.Diff(object(t, test.kind, test.want).Object, merged.Object); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(object(t, test.kind, test.last).Object, last.Object); diff != "" {
				t.Errorf("the last manifest was modified:\n%s", diff)
			}
		})
	}
}
