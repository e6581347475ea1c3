package conversion

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	toV1Beta1  = "addon.open-cluster-management.io/v1beta1"
	toV1Alpha1 = "addon.open-cluster-management.io/v1alpha1"
)

// WH-13: one case for each field that is converted.
func TestConvert(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, kind, v1alpha1, v1beta1 string
		// oneWay is for what v1beta1 does not have, so that it does not come back.
		oneWay bool
	}{{
		name: "a supported type with a default",
		kind: kindClusterManagementAddOn,
		v1alpha1: `
spec:
  supportedConfigs:
  - {group: g, resource: r, defaultConfig: {namespace: ns, name: conf}}`,
		v1beta1: `
spec:
  defaultConfigs:
  - {group: g, resource: r, namespace: ns, name: conf}`,
	}, {
		name: "a supported type without default",
		kind: kindClusterManagementAddOn,
		v1alpha1: `
spec:
  supportedConfigs:
  - {group: g, resource: r}
  - {group: "", resource: r2, defaultConfig: {name: conf}}`,
		v1beta1: `
spec:
  defaultConfigs:
  - {group: g, resource: r, name: __reserved_no_default__}
  - {group: "", resource: r2, name: conf}`,
	}, {
		name: "references to the defaults, spelled differently",
		kind: kindClusterManagementAddOn,
		v1alpha1: `
spec: {}
status:
  defaultconfigReferences:
  - {group: g, resource: r, desiredConfig: {name: conf, specHash: h}}`,
		v1beta1: `
spec: {}
status:
  defaultConfigReferences:
  - {group: g, resource: r, desiredConfig: {name: conf, specHash: h}}`,
	}, {
		name: "what is the same in both versions",
		kind: kindClusterManagementAddOn,
		v1alpha1: `
spec:
  addOnMeta: {displayName: d, description: e}
  installStrategy:
    type: Placements
    placements:
    - {namespace: ns, name: p, rolloutStrategy: {type: Progressive, progressive: {maxConcurrency: 25%}}}
status:
  installProgressions:
  - {namespace: ns, name: p, configReferences: [{group: g, resource: r, lastKnownGoodConfig: {name: conf, specHash: h}}]}`,
		v1beta1: `
spec:
  addOnMeta: {displayName: d, description: e}
  installStrategy:
    type: Placements
    placements:
    - {namespace: ns, name: p, rolloutStrategy: {type: Progressive, progressive: {maxConcurrency: 25%}}}
status:
  installProgressions:
  - {namespace: ns, name: p, configReferences: [{group: g, resource: r, lastKnownGoodConfig: {name: conf, specHash: h}}]}`,
	}, {
		name:   "the deprecated configuration, dropped",
		kind:   kindClusterManagementAddOn,
		oneWay: true,
		v1alpha1: `
spec:
  addOnConfiguration: {crdName: c, crName: conf, lastObservedGeneration: 3}`,
		v1beta1: `
spec: {}`,
	}, {
		name: "the install namespace",
		kind: kindManagedClusterAddOn,
		v1alpha1: `
spec: {installNamespace: ns}`,
		v1beta1: `
metadata:
  annotations: {addon.open-cluster-management.io/v1alpha1-install-namespace: ns}
spec: {}`,
	}, {
		name: "the install namespace among other annotations",
		kind: kindManagedClusterAddOn,
		v1alpha1: `
metadata:
  annotations: {other: annotation}
spec: {installNamespace: ns, configs: [{group: g, resource: r, namespace: ns, name: conf}]}`,
		v1beta1: `
metadata:
  annotations: {other: annotation, addon.open-cluster-management.io/v1alpha1-install-namespace: ns}
spec: {configs: [{group: g, resource: r, namespace: ns, name: conf}]}`,
	}, {
		name: "a registration for the API server of the hub, and how it is driven",
		kind: kindManagedClusterAddOn,
		v1alpha1: `
spec: {}
status:
  kubeClientDriver: token
  registrations:
  - signerName: kubernetes.io/kube-apiserver-client
    subject: {user: u, groups: [g1, g2]}`,
		v1beta1: `
spec: {}
status:
  registrations:
  - type: kubeClient
    kubeClient: {driver: token, subject: {user: u, groups: [g1, g2]}}`,
	}, {
		name: "a registration for another signer",
		kind: kindManagedClusterAddOn,
		v1alpha1: `
spec: {}
status:
  registrations:
  - signerName: example.com/signer
    subject: {user: u, groups: [g], organizationUnit: [o]}`,
		v1beta1: `
spec: {}
status:
  registrations:
  - type: customSigner
    customSigner: {signerName: example.com/signer, subject: {user: u, groups: [g], organizationUnits: [o]}}`,
	}, {
		name:   "the organisational units of a registration for the hub, dropped",
		kind:   kindManagedClusterAddOn,
		oneWay: true,
		v1alpha1: `
spec: {}
status:
  registrations:
  - signerName: kubernetes.io/kube-apiserver-client
    subject: {user: u, organizationUnit: [o]}`,
		v1beta1: `
spec: {}
status:
  registrations:
  - type: kubeClient
    kubeClient: {subject: {user: u}}`,
	}, {
		name: "the deprecated name of a configuration, refilled",
		kind: kindManagedClusterAddOn,
		v1alpha1: `
spec: {}
status:
  configReferences:
  - {group: g, resource: r, namespace: ns, name: conf, lastObservedGeneration: 2,
     desiredConfig: {namespace: ns, name: conf, specHash: h}, lastAppliedConfig: {namespace: ns, name: m, specHash: i}}`,
		v1beta1: `
spec: {}
status:
  configReferences:
  - {group: g, resource: r, lastObservedGeneration: 2,
     desiredConfig: {namespace: ns, name: conf, specHash: h}, lastAppliedConfig: {namespace: ns, name: m, specHash: i}}`,
	}, {
		name:   "the deprecated name of a configuration that is not the desired one, dropped",
		kind:   kindManagedClusterAddOn,
		oneWay: true,
		v1alpha1: `
spec: {}
status:
  configReferences:
  - {group: g, resource: r, namespace: old, name: old, desiredConfig: {namespace: ns, name: conf}}`,
		v1beta1: `
spec: {}
status:
  configReferences:
  - {group: g, resource: r, desiredConfig: {namespace: ns, name: conf, specHash: ""}}`,
	}, {
		name: "everything else of a status",
		kind: kindManagedClusterAddOn,
		v1alpha1: `
spec: {}
status:
  namespace: ns
  addOnMeta: {displayName: d}
  healthCheck: {mode: Customized}
  supportedConfigs: [{group: g, resource: r}]
  relatedObjects: [{group: g, resource: r, name: conf}]
  conditions: [{type: Available, status: "True", reason: R, message: m, lastTransitionTime: "2026-01-02T03:04:05Z"}]`,
		v1beta1: `
spec: {}
status:
  namespace: ns
  addOnMeta: {displayName: d}
  healthCheck: {mode: Customized}
  supportedConfigs: [{group: g, resource: r}]
  relatedObjects: [{group: g, resource: r, name: conf}]
  conditions: [{type: Available, status: "True", reason: R, message: m, lastTransitionTime: "2026-01-02T03:04:05Z"}]`,
	}} {
		t.Run(test.kind+"/"+test.name, func(t *testing.T) {
			t.Parallel()
			v1alpha1 := object(t, toV1Alpha1, test.kind, test.v1alpha1)
			v1beta1 := object(t, toV1Beta1, test.kind, test.v1beta1)
			expectConversion(t, v1alpha1, toV1Beta1, v1beta1)
			expectConversion(t, v1alpha1, toV1Alpha1, v1alpha1)
			if !test.oneWay {
				expectConversion(t, v1beta1, toV1Alpha1, v1alpha1)
			}
		})
	}
}

// WH-13: when registrations are driven differently, v1alpha1 has room for one driver only.
func TestFirstDriverWins(t *testing.T) {
	t.Parallel()
	expectConversion(t, object(t, toV1Beta1, kindManagedClusterAddOn, `
spec: {}
status:
  registrations:
  - {type: customSigner, customSigner: {signerName: example.com/signer}}
  - {type: kubeClient}
  - {type: kubeClient, kubeClient: {driver: token}}
  - {type: kubeClient, kubeClient: {driver: csr}}`),
		toV1Alpha1, object(t, toV1Alpha1, kindManagedClusterAddOn, `
spec: {}
status:
  kubeClientDriver: token
  registrations:
  - {signerName: example.com/signer}
  - {signerName: kubernetes.io/kube-apiserver-client}
  - {signerName: kubernetes.io/kube-apiserver-client}
  - {signerName: kubernetes.io/kube-apiserver-client}`))
}

// WH-13
func TestConvertRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, object, desired, want string
	}{
		{
			"an install namespace that is none",
			`{apiVersion: addon.open-cluster-management.io/v1beta1, kind: ManagedClusterAddOn, metadata: {namespace: c1, name: a1,
			  annotations: {addon.open-cluster-management.io/v1alpha1-install-namespace: No_Namespace}}, spec: {}}`,
			toV1Alpha1,
			`convert ManagedClusterAddOn c1/a1 from addon.open-cluster-management.io/v1beta1 to ` + toV1Alpha1 + `: ` +
				`metadata.annotations[addon.open-cluster-management.io/v1alpha1-install-namespace]: Invalid value: "No_Namespace"`,
		},
		{
			"a custom signer without signer",
			`{apiVersion: addon.open-cluster-management.io/v1beta1, kind: ManagedClusterAddOn, metadata: {namespace: c1, name: a1},
			  spec: {}, status: {registrations: [{type: kubeClient}, {type: customSigner}]}}`,
			toV1Alpha1,
			`status.registrations[1].customSigner: Required value: type customSigner needs the name of its signer`,
		},
		{
			"an unknown type of registration",
			`{apiVersion: addon.open-cluster-management.io/v1beta1, kind: ManagedClusterAddOn, metadata: {namespace: c1, name: a1},
			  spec: {}, status: {registrations: [{type: KubeClient}]}}`,
			toV1Alpha1,
			`status.registrations[0].type: Unsupported value: "KubeClient": supported values: "kubeClient", "customSigner"`,
		},
		{
			"another kind",
			`{apiVersion: addon.open-cluster-management.io/v1beta1, kind: AddOnTemplate, metadata: {name: t1}}`,
			toV1Alpha1,
			`convert AddOnTemplate t1 from addon.open-cluster-management.io/v1beta1 to ` + toV1Alpha1 +
				`: only ClusterManagementAddOn and ManagedClusterAddOn convert`,
		},
		{
			"another version",
			`{apiVersion: addon.open-cluster-management.io/v1alpha1, kind: ClusterManagementAddOn, metadata: {name: a1}}`,
			"addon.open-cluster-management.io/v1",
			`convert ClusterManagementAddOn a1 from ` + toV1Alpha1 + ` to addon.open-cluster-management.io/v1: only`,
		},
		{
			"a field of the wrong type",
			`{apiVersion: addon.open-cluster-management.io/v1alpha1, kind: ClusterManagementAddOn, metadata: {name: a1},
			  spec: {supportedConfigs: 7}}`,
			toV1Beta1,
			`convert ClusterManagementAddOn a1 from ` + toV1Alpha1 + ` to ` + toV1Beta1 + `: decode: `,
		},
		{"no object", `[]`, toV1Beta1, `decode the object to convert: `},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			data, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(test.object, "\t", " ")))
			if err != nil {
				t.Fatal(err)
			}
			converted, err := convert(data, test.desired)
			if err == nil {
				t.Fatalf("converted to %s, want an error", converted)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is\n%s\nand does not contain\n%s", err, test.want)
			}
		})
	}
}

// object makes an object in JSON of what is particular to a test.
func object(t *testing.T, apiVersion, kind, particular string) []byte {
	t.Helper()
	object := map[string]any{}
	if err := yaml.Unmarshal([]byte(particular), &object); err != nil {
		t.Fatal(err)
	}
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
	}
	metadata["name"], metadata["namespace"], metadata["uid"] = "a1", metav1.NamespaceDefault, "u1"
	metadata["labels"] = map[string]any{"some": "label"}
	object["metadata"], object["apiVersion"], object["kind"] = metadata, apiVersion, kind
	data, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	data, err = yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func expectConversion(t *testing.T, in []byte, desired string, want []byte) {
	t.Helper()
	got, err := convert(in, desired)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(normal(t, want), normal(t, got)); diff != "" {
		t.Errorf("converted to %s, - is wanted, + is what came out:\n%s", desired, diff)
	}
}

// normal decodes JSON and leaves empty maps and null out, which mean the same as nothing.
func normal(t *testing.T, data []byte) any {
	t.Helper()
	var value any
	if err := yaml.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	return withoutEmpty(value)
}

func withoutEmpty(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, element := range value {
			element = withoutEmpty(element)
			if empty, ok := element.(map[string]any); element == nil || ok && len(empty) == 0 {
				delete(value, key)
				continue
			}
			value[key] = element
		}
		return value
	case []any:
		for i := range value {
			value[i] = withoutEmpty(value[i])
		}
		return value
	default:
		return value
	}
}
