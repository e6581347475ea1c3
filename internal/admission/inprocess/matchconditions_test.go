package inprocess_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// In an existing cluster, the webhooks are called for every user whom the rule for the status of add-ons takes for an agent.
func TestWebhookSeesAgentsOfAddOns(t *testing.T) {
	t.Parallel()
	addOn := object(t, `{apiVersion: addon.open-cluster-management.io/v1beta1, kind: ManagedClusterAddOn, metadata: {name: a, namespace: c1}}`)
	withoutGroups := &user.DefaultInfo{Name: "system:open-cluster-management:cluster:c1:addon:a:agent:x",
		Groups: []string{"system:authenticated"}}
	for _, who := range append([]*user.DefaultInfo{grpcServer, withoutGroups}, addOnAgents...) {
		if !sees(t, "managedclusteraddons/status", addOn, addOn, who) {
			t.Errorf("no webhook sees what %q in %q writes", who.Name, who.Groups)
		}
	}
	for _, who := range addOnManagers {
		if sees(t, "managedclusteraddons/status", addOn, addOn, who) {
			t.Errorf("a webhook sees all that %q in %q writes", who.Name, who.Groups)
		}
	}
}

// In an existing cluster, the webhooks are called for a manager that registers an add-on of an install strategy, and for nothing else
// that managers write.
func TestWebhookSeesRegistrationOfAddOns(t *testing.T) {
	t.Parallel()
	const (
		strategy   = "annotations: {capstan.io/installed-by: install-strategy}"
		registered = `conditions: [{type: RegistrationApplied, status: "True"}]`
		other      = `conditions: [{type: Available, status: "True"}]`
	)
	for _, test := range []struct {
		name, metadata, old, now string
		seen                     bool
	}{
		{"the first status", strategy, "", "status: {" + registered + "}", true},
		{"a later status", strategy, "status: {" + other + "}", "status: {" + registered + "}", true},
		{"a status without conditions", strategy, "status: {namespace: ns}", "status: {" + registered + "}", true},
		{"registered before", strategy, "status: {" + registered + "}", "status: {" + registered + ", namespace: ns}", false},
		{"another condition", strategy, "", "status: {" + other + "}", false},
		{"no conditions", strategy, "", "status: {namespace: ns}", false},
		{"no status", strategy, "", "", false},
		{"installed by something else", "annotations: {capstan.io/installed-by: hand}", "", "status: {" + registered + "}", false},
		{"another annotation", "annotations: {a: b}", "", "status: {" + registered + "}", false},
		{"no annotations", "", "", "status: {" + registered + "}", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			addOn := func(status string) *unstructured.Unstructured {
				return object(t, `{apiVersion: addon.open-cluster-management.io/v1beta1, kind: ManagedClusterAddOn, metadata: {name: a,
					namespace: c1, `+test.metadata+`}, `+status+`}`)
			}
			for _, who := range addOnManagers {
				if got := sees(t, "managedclusteraddons/status", addOn(test.now), addOn(test.old), who); got != test.seen {
					t.Errorf("a webhook sees what %q writes: %v, want %v", who.Name, got, test.seen)
				}
			}
		})
	}
}

// A2: in an existing cluster, the webhooks are called for everybody who names other configurations for a cluster, and for nothing else that
// is written of the spec.
func TestWebhookSeesConfigsOfAddOns(t *testing.T) {
	t.Parallel()
	const one, two = "spec: {configs: [{resource: r, name: one}]}", "spec: {configs: [{resource: r, name: two}]}"
	for _, test := range []struct {
		name, old, now string
		seen           bool
	}{
		{"the first", "", one, true},
		{"the first of a spec", "spec: {}", one, true},
		{"another one", one, two, true},
		{"as before", one, one, false},
		{"no longer one", one, "spec: {}", false},
		{"an empty list", one, "spec: {configs: []}", false},
		{"no spec", "", "", false},
	} {
		addOn := func(spec string) *unstructured.Unstructured {
			return object(t, `{apiVersion: addon.open-cluster-management.io/v1beta1, kind: ManagedClusterAddOn, metadata: {name: a,
				namespace: c1}, `+spec+`}`)
		}
		for _, who := range append(slices.Clone(addOnManagers), addOnAgents...) {
			if got := sees(t, "managedclusteraddons", addOn(test.now), addOn(test.old), who); got != test.seen {
				t.Errorf("%s: a webhook sees what %q writes: %v, want %v", test.name, who.Name, got, test.seen)
			}
		}
		if test.old == "" && sees(t, "managedclusteraddons", addOn(test.now), nil, addOnManagers[0]) != test.seen {
			t.Errorf("%s: a webhook sees the creation: %v, want %v", test.name, !test.seen, test.seen)
		}
	}
}

// HC-04: in an existing cluster, the webhooks are called for the certificate requests of everybody who joins, and not for those of others.
func TestWebhookSeesWhoJoins(t *testing.T) {
	t.Parallel()
	csr := object(t, `{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: c1-a}}`)
	for credential, who := range newcomers {
		if !sees(t, "certificatesigningrequests", csr, nil, who) {
			t.Errorf("%s: no webhook sees the requests of %q", credential, who.Name)
		}
	}
	for _, name := range []string{"system:serviceaccount:hub:deployer", "alice:agent-registration-bootstrap", "system:node:a"} {
		if sees(t, "certificatesigningrequests", csr, nil, &user.DefaultInfo{Name: name, Groups: []string{"system:authenticated"}}) {
			t.Errorf("a webhook sees the requests of %q", name)
		}
	}
}

// sees reports whether a validating webhook of deploy/hub for a resource is called for an update.
func sees(t *testing.T, resource string, object, old *unstructured.Unstructured, who user.Info) bool {
	t.Helper()
	_, subresource, _ := strings.Cut(resource, "/")
	seen, known := false, false
	for _, webhook := range webhooksFor(t, resource) {
		all := true
		for _, condition := range webhook.MatchConditions {
			all = all && matches(t, condition.Expression, object, old, subresource, who)
		}
		seen, known = seen || all, true
	}
	if !known {
		t.Errorf("no webhook is for %s", resource)
	}
	return seen
}

// webhooksFor returns the validating webhooks of deploy/hub for a resource.
func webhooksFor(t *testing.T, resource string) (all []admissionregistrationv1.ValidatingWebhook) {
	t.Helper()
	content, err := os.ReadFile("../../../deploy/hub/webhooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := yaml.Unmarshal([]byte(document), configuration); err != nil {
			t.Fatal(err)
		}
		for _, webhook := range configuration.Webhooks {
			if webhook.Rules[0].Resources[0] == resource {
				all = append(all, webhook)
			}
		}
	}
	return all
}

// matches reports whether a match condition of a webhook holds for a write; old is nil for a creation.
func matches(t *testing.T, expression string, object, old *unstructured.Unstructured, subresource string, who user.Info) bool {
	t.Helper()
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	condition := matchconditions.MatchCondition{Name: "condition", Expression: expression}
	compiled := compiler.CompileCondition([]cel.ExpressionAccessor{&condition}, cel.OptionalVariableDeclarations{},
		environment.StoredExpressions)
	operation, before := admission.Create, runtime.Object(nil)
	if old != nil {
		operation, before = admission.Update, old
	}
	kind := object.GroupVersionKind()
	attributes := &admission.VersionedAttributes{Attributes: admission.NewAttributesRecord(object, before, kind, object.GetNamespace(),
		object.GetName(), resourceOf(kind), subresource, operation, nil, false, who), VersionedKind: kind}
	attributes.VersionedObject.Set(object)
	if old != nil {
		attributes.VersionedOldObject.Set(old)
	}
	request := cel.CreateAdmissionRequest(attributes.Attributes, metav1.GroupVersionResource(attributes.GetResource()),
		metav1.GroupVersionKind(attributes.GetKind()))
	results, _, err := compiled.ForInput(t.Context(), attributes, request, cel.OptionalVariableBindings{}, nil,
		apiservercel.RuntimeCELCostBudget)
	if err != nil || len(results) != 1 || results[0].Error != nil {
		t.Fatalf("%s: %+v, %v", expression, results, err)
	}
	return results[0].EvalResult.Value() == true
}
