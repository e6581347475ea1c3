package inprocess_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
)

// policy is one of deploy/hub, as an API server compiles it.
type policy struct {
	name       string
	expression []string
	compiled   cel.ConditionEvaluator
	composed   *cel.CompositedCompiler
}

// readPolicies reads those of a file of deploy/hub.
func readPolicies(t *testing.T, file string) map[string]policy {
	t.Helper()
	content, err := os.ReadFile("../../../deploy/hub/" + file)
	if err != nil {
		t.Fatal(err)
	}
	policies, bound := map[string]policy{}, map[string]bool{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		var document struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
			Spec              struct {
				admissionregistrationv1.ValidatingAdmissionPolicySpec `json:",inline"`
				PolicyName                                            string `json:"policyName"`
			} `json:"spec"`
		}
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if document.Kind == "ValidatingAdmissionPolicyBinding" {
			bound[document.Spec.PolicyName] = true
			continue
		}
		if document.Kind != "ValidatingAdmissionPolicy" {
			continue
		}
		policies[document.Name] = compilePolicy(t, document.Name, &document.Spec.ValidatingAdmissionPolicySpec)
	}
	for name := range policies {
		if !bound[name] {
			t.Errorf("nothing puts the policy %s into force", name)
		}
	}
	return policies
}

func compilePolicy(t *testing.T, name string, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) policy {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	declared := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, variable := range spec.Variables {
		if result := compiler.CompileAndStoreVariable(&validating.Variable{Name: variable.Name, Expression: variable.Expression}, declared,
			environment.StoredExpressions); result.Error != nil {
			t.Errorf("%s: variable %s: %v", name, variable.Name, result.Error)
		}
	}
	p := policy{name: name, composed: compiler}
	var expressions []cel.ExpressionAccessor
	for _, validation := range spec.Validations {
		expressions = append(expressions, &validating.ValidationCondition{Expression: validation.Expression})
		p.expression = append(p.expression, validation.Expression)
	}
	p.compiled = compiler.CompileCondition(expressions, declared, environment.StoredExpressions)
	for _, err := range p.compiled.CompilationErrors() {
		t.Errorf("%s: %v", name, err)
	}
	return p
}

// mayBindView is what an installer of add-ons has given, and nothing else.
var mayBindView = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == "bind" && a.GetAPIGroup() == "rbac.authorization.k8s.io" && a.GetResource() == "clusterroles" && a.GetName() == "view" &&
		a.GetNamespace() == "x" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
})

// write reports whether the policy lets an object be written; old is nil for one that is created, object for one that is deleted.
func (p policy) write(t *testing.T, resource, subresource string, object, old *unstructured.Unstructured,
	namespace *corev1.Namespace) bool {
	t.Helper()
	operation, written := admission.Update, object
	attributes := &admission.VersionedAttributes{}
	if object != nil {
		attributes.VersionedObject.Set(object)
	} else {
		operation, written = admission.Delete, old
	}
	if old != nil {
		attributes.VersionedOldObject.Set(old)
	} else {
		operation = admission.Create
	}
	kind := written.GroupVersionKind()
	attributes.VersionedKind = kind
	attributes.Attributes = admission.NewAttributesRecord(attributes.VersionedObject.Object(), attributes.VersionedOldObject.Object(), kind,
		written.GetNamespace(), written.GetName(),
		schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resource}, subresource, operation, nil, false,
		&user.DefaultInfo{Name: "controller"})
	request := cel.CreateAdmissionRequest(attributes.Attributes, metav1.GroupVersionResource(attributes.GetResource()),
		metav1.GroupVersionKind(kind))
	results, _, err := p.compiled.ForInput(p.composed.CreateContext(t.Context()), attributes, request,
		cel.OptionalVariableBindings{Authorizer: mayBindView}, cel.CreateNamespaceObject(namespace), apiservercel.RuntimeCELCostBudget)
	if err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	allowed := true
	for i, result := range results {
		if result.Error != nil {
			t.Errorf("%s: %s: %v", p.name, p.expression[i], result.Error)
		}
		allowed = allowed && result.EvalResult != nil && result.EvalResult.Value() == true
	}
	return allowed
}

// filled is an object of a text in which words are replaced.
func filled(t *testing.T, text string, pairs ...string) *unstructured.Unstructured {
	t.Helper()
	return object(t, strings.NewReplacer(pairs...).Replace(text))
}

// The policies of deploy/hub/policies.yaml let through what the controllers write, and nothing else of the kind.
func TestPolicies(t *testing.T) {
	t.Parallel()
	policies := readPolicies(t, "policies.yaml")
	cluster := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "c1",
		Labels: map[string]string{"open-cluster-management.io/cluster-name": "c1"}}}
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}
	const (
		csr      = `{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: r, labels: {LABELS}}, spec: {signerName: kubernetes.io/kube-apiserver-client, username: u, groups: [GROUP]}}`
		addOnCSR = `{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: r, labels: {open-cluster-management.io/cluster-name: c1, open-cluster-management.io/addon-name: a}}, spec: {signerName: example.com/a, username: u, groups: [GROUP]}}`
		binding  = `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: "NAME", namespace: c1}, roleRef: {kind: ClusterRole, name: "open-cluster-management:managedcluster:work"}, subjects: [{kind: Group, name: "SUBJECT"}]}`
		everyone = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: "open-cluster-management:managedcluster:c1"}, roleRef: {kind: ClusterRole, name: "open-cluster-management:managedcluster:c1"}, subjects: [{kind: Group, name: "SUBJECT"}]}`
		token    = `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a-token-role, namespace: c1, labels: {addon.open-cluster-management.io/token-infrastructure: "true"}}, rules: [{apiGroups: [""], resources: [serviceaccounts/token], resourceNames: [ACCOUNT], verbs: [create]}, {apiGroups: [""], resources: [serviceaccounts/token], verbs: [subscribe]}]}`
		global   = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "open-cluster-management:managedcluster:NAME", labels: {LABELS}}, rules: [RULES]}`
		remains  = `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: "open-cluster-management:managedcluster:NAME", namespace: NAMESPACE}, rules: [RULES]}`
		refers   = `{apiVersion: rbac.authorization.k8s.io/v1, kind: KIND, metadata: {name: "open-cluster-management:managedcluster:c1", NAMESPACE}, roleRef: {kind: OF, name: "open-cluster-management:managedcluster:ROLE"}, subjects: [{kind: Group, name: "system:open-cluster-management:c1"}]}`
		bound    = `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: NAMESPACE, labels: {open-cluster-management.io/addon-name: a, open-cluster-management.io/cluster-name: c1}}, roleRef: {kind: ClusterRole, name: "ROLE"}, subjects: [{kind: KIND, name: "SUBJECT", namespace: WHERE}]}`
		tokens   = `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a-token-role, namespace: c1, labels: {addon.open-cluster-management.io/token-infrastructure: "true", open-cluster-management.io/cluster-name: c1}}, roleRef: {kind: Role, name: ROLE}, subjects: [{kind: Group, name: "SUBJECT"}]}`
		account  = `{apiVersion: v1, kind: ServiceAccount, metadata: {name: a-agent, namespace: c1, labels: {addon.open-cluster-management.io/token-infrastructure: "true"}}}`
		lease    = `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: NAME, namespace: NAMESPACE}}`
		ns       = `{apiVersion: v1, kind: Namespace, metadata: {name: NAME, labels: {open-cluster-management.io/cluster-name: NAME}}}`
		bare     = `{apiVersion: v1, kind: Namespace, metadata: {name: c1, labels: {kubernetes.io/metadata.name: c1}}}`
		mc       = `{apiVersion: cluster.open-cluster-management.io/v1, kind: ManagedCluster, metadata: {name: c1, labels: {LABELS}}, spec: {hubAcceptsClient: true}}`
		set      = `{apiVersion: work.open-cluster-management.io/v1alpha1, kind: ManifestWorkReplicaSet, metadata: {name: s, namespace: x}, spec: {placementRefs: [{name: NAME}]}}`
		secret   = `{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: x}, type: TYPE}`
		addOn    = `{apiVersion: addon.open-cluster-management.io/v1beta1, kind: ManagedClusterAddOn, metadata: {name: a, namespace: c1}, status: {STATUS}}`
		identity = `registrations: [{type: kubeClient, kubeClient: {subject: {user: u}}}]`
		lost     = `conditions: [{type: Available, status: Unknown, reason: R, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}]`
	)
	rule := func(group, resource, verbs string, names ...string) string {
		return fmt.Sprintf(`{apiGroups: [%q], resources: [%s], verbs: [%s], resourceNames: [%s]}`, group, resource, verbs,
			strings.Join(names, ", "))
	}
	const clusterGroup, workGroup, certificates = "cluster.open-cluster-management.io", "work.open-cluster-management.io",
		"certificates.k8s.io"
	ofAccepted := strings.Join([]string{
		rule(certificates, "certificatesigningrequests", "create, get, list, watch"),
		rule("register.open-cluster-management.io", "managedclusters/clientcertificates", "renew"),
		rule(clusterGroup, "managedclusters", "get, list, update, watch", "c1"), rule(clusterGroup, "managedclusters/status", "patch, update",
			"c1"),
	}, ", ")
	globalRole := func(name, labels string, rules ...string) *unstructured.Unstructured {
		return filled(t, global, "NAME", name, "LABELS", labels, "RULES", strings.Join(rules, ", "))
	}
	remainingRole := func(namespace, name string, rules ...string) *unstructured.Unstructured {
		return filled(t, remains, "NAMESPACE", namespace, "NAME", name, "RULES", strings.Join(rules, ", "))
	}
	aggregated := globalRole("c1", "")
	aggregated.Object["aggregationRule"] = map[string]any{}
	of := func(kind, of, role string) *unstructured.Unstructured {
		namespace := ""
		if kind == "RoleBinding" {
			namespace = "namespace: c1"
		}
		return filled(t, refers, "KIND", kind, "OF", of, "ROLE", role, "NAMESPACE", namespace)
	}
	boundTo := func(kind, where, subject string) *unstructured.Unstructured {
		return filled(t, bound, "NAMESPACE", "x", "ROLE", "view", "KIND", kind, "WHERE", where, "SUBJECT", subject)
	}
	const anAddOn = "system:open-cluster-management:cluster:c1:addon:a"
	ofCluster, ofHub := "open-cluster-management.io/cluster-name: c1", "system:serviceaccounts:open-cluster-management-hub"
	for _, test := range []struct {
		policy, resource, subresource string
		object, old                   *unstructured.Unstructured
		namespace                     *corev1.Namespace
		allowed                       bool
	}{
		{"approvals.registration-controller", "certificatesigningrequests", "approval", filled(t, csr, "LABELS", ofCluster, "GROUP", "g"),
			filled(t, csr, "LABELS", ofCluster, "GROUP", "g"), nil, true},
		{"approvals.registration-controller", "certificatesigningrequests", "approval", filled(t, csr, "LABELS", ofCluster, "GROUP", ofHub),
			filled(t, csr, "LABELS", ofCluster, "GROUP", ofHub), nil, false},
		{"approvals.registration-controller", "certificatesigningrequests", "approval", filled(t, csr, "LABELS", "", "GROUP", "g"),
			filled(t, csr, "LABELS", "", "GROUP", "g"), nil, false},
		{"rights-of-agents.registration-controller", "certificatesigningrequests", "", filled(t, csr, "LABELS", ofCluster, "GROUP", "g"), nil,
			nil, false},
		{"roles.registration-controller", "rolebindings", "", filled(t, binding, "NAME", "open-cluster-management:managedcluster:c1:work",
			"SUBJECT", "system:open-cluster-management:c1"), nil, cluster, true},
		{"roles.registration-controller", "rolebindings", "", filled(t, binding, "NAME", "open-cluster-management:managedcluster:c1:work",
			"SUBJECT", "open-cluster-management:c1"), nil, cluster, true},
		{"roles.registration-controller", "rolebindings", "", filled(t, binding, "NAME", "open-cluster-management:managedcluster:c1:work",
			"SUBJECT", "system:open-cluster-management:c2"), nil, cluster, false},
		{"roles.registration-controller", "rolebindings", "", filled(t, binding, "NAME", "b", "SUBJECT", "system:open-cluster-management:c1"),
			nil, cluster, false},
		{"roles.registration-controller", "rolebindings", "", nil, filled(t, binding, "NAME", "b", "SUBJECT", "g"), cluster, false},
		{"roles.registration-controller", "rolebindings", "", nil, filled(t, binding, "NAME", "open-cluster-management:managedcluster:c1:work",
			"SUBJECT", "g"), cluster, true},
		{"roles.registration-controller", "clusterrolebindings", "", filled(t, everyone, "SUBJECT", "system:open-cluster-management:c1"), nil,
			nil, true},
		{"roles.registration-controller", "clusterrolebindings", "", filled(t, everyone, "SUBJECT", "system:open-cluster-management:c2"), nil,
			nil, false},
		{"roles.registration-controller", "clusterroles", "", globalRole("c1", "", ofAccepted), nil, nil, true},
		{"roles.registration-controller", "clusterroles", "",
			globalRole("c1", "", rule(clusterGroup, "managedclusters", "get, list, watch", "c1")), nil, nil, true},
		{"roles.registration-controller", "clusterroles", "",
			globalRole("c1", "", rule(clusterGroup, "managedclusters", "get, list, watch", "c2")), nil, nil, false},
		{"roles.registration-controller", "clusterroles", "", globalRole("c1", "", rule(clusterGroup, "managedclusters", "get, list, watch")),
			nil, nil, false},
		{"roles.registration-controller", "clusterroles", "",
			globalRole("c1", "", ofAccepted, rule(certificates, "certificatesigningrequests/approval", "update")), nil, nil, false},
		{"roles.registration-controller", "clusterroles", "",
			globalRole("c1", "", rule(certificates, "signers", "approve", "kubernetes.io/kube-apiserver-client")), nil, nil, false},
		{"roles.registration-controller", "clusterroles", "", globalRole("c1", "", rule(certificates, "certificatesigningrequests", "'*'")), nil,
			nil, false},
		{"roles.registration-controller", "clusterroles", "", globalRole("c1", "", rule("*", "certificatesigningrequests", "get")), nil, nil,
			false},
		{"roles.registration-controller", "clusterroles", "", globalRole("c1", "", `{nonResourceURLs: ["/metrics"], verbs: [get]}`), nil, nil,
			false},
		{"roles.registration-controller", "clusterroles", "", globalRole("c1", `rbac.authorization.k8s.io/aggregate-to-view: "true"`, ofAccepted),
			nil, nil, false},
		{"roles.registration-controller", "clusterroles", "", aggregated, nil, nil, false},
		{"roles.registration-controller", "clusterroles", "",
			globalRole("registration", "", rule("coordination.k8s.io", "leases", "get, list, watch, update"),
				rule("addon.open-cluster-management.io", "managedclusteraddons/status", "patch, update"), rule("events.k8s.io", "events", "create")),
			nil, nil, true},
		{"roles.registration-controller", "clusterroles", "", globalRole("registration", "", rule("", "namespaces", "create")), nil, nil, false},
		{"roles.registration-controller", "clusterroles", "",
			globalRole("work", "", rule(workGroup, "manifestworks", "get, list, watch, update, patch"), rule("", "events", "create, patch, update"),
				rule("events.k8s.io", "events", "create")), nil, nil, true},
		{"roles.registration-controller", "clusterroles", "", globalRole("c1", "", rule(workGroup, "manifestworks", "get, list, watch")), nil,
			nil, false},
		{"roles.registration-controller", "roles", "",
			remainingRole("c1", "c1:remaining-works", rule(workGroup, "manifestworks", "get, update, patch", "w"),
				rule(workGroup, "manifestworks/status", "patch, update", "w")), nil, cluster, true},
		{"roles.registration-controller", "roles", "",
			remainingRole("c1", "c1:remaining-works", rule(workGroup, "manifestworks", "get, update, patch")), nil, cluster, false},
		{"roles.registration-controller", "roles", "",
			remainingRole("c1", "c1:remaining-works", rule("rbac.authorization.k8s.io", "rolebindings", "create", "w")), nil, cluster, false},
		{"roles.registration-controller", "roles", "", remainingRole("c1", "c1", rule(workGroup, "manifestworks", "get", "w")), nil, cluster,
			false},
		{"roles.registration-controller", "roles", "", remainingRole("kube-system", "kube-system:remaining-works",
			rule(workGroup, "manifestworks", "get", "w")), nil, other, false},
		{"roles.registration-controller", "rolebindings", "", of("RoleBinding", "ClusterRole", "registration"), nil, cluster, true},
		{"roles.registration-controller", "rolebindings", "", of("RoleBinding", "Role", "c1:remaining-works"), nil, cluster, true},
		{"roles.registration-controller", "rolebindings", "", of("RoleBinding", "ClusterRole", "c2"), nil, cluster, false},
		{"roles.registration-controller", "rolebindings", "", of("RoleBinding", "Role", "work"), nil, cluster, false},
		{"roles.registration-controller", "clusterrolebindings", "", of("ClusterRoleBinding", "ClusterRole", "c1"), nil, nil, true},
		{"roles.registration-controller", "clusterrolebindings", "", of("ClusterRoleBinding", "ClusterRole", "work"), nil, nil, false},
		{"leases.registration-controller", "leases", "", filled(t, lease, "NAMESPACE", "c1", "NAME", "managed-cluster-lease"), nil, cluster,
			true},
		{"leases.registration-controller", "leases", "", filled(t, lease, "NAMESPACE", "open-cluster-management-hub", "NAME", "x"), nil, nil,
			true},
		{"leases.registration-controller", "leases", "", filled(t, lease, "NAMESPACE", "kube-system", "NAME", "x"), nil, other, false},
		{"namespaces.registration-controller", "namespaces", "", filled(t, ns, "NAME", "c1"), nil, nil, true},
		{"namespaces.registration-controller", "namespaces", "", filled(t, ns, "NAME", "kube-system"), nil, nil, false},
		{"namespaces.registration-controller", "namespaces", "", filled(t, ns, "NAME", "c1"), filled(t, bare), nil, false},
		// a label of Kubernetes goes
		{"namespaces.registration-controller", "namespaces", "", filled(t, bare, "c1}", "c1, open-cluster-management.io/cluster-name: c1}"), nil,
			nil, true},
		{"namespaces.registration-controller", "namespaces", "",
			filled(t, bare, "c1}", "c1, open-cluster-management.io/cluster-name: c1, app.kubernetes.io/part-of: hub}"), nil, nil, true},
		{"namespaces.registration-controller", "namespaces", "",
			filled(t, bare, "c1}", "c1, open-cluster-management.io/cluster-name: c1, pod-security.kubernetes.io/enforce: privileged}"), nil, nil,
			false},
		{"tokens.addon-manager-controller", "serviceaccounts", "token", filled(t, account), nil, cluster, false},
		{"approvals.addon-manager-controller", "certificatesigningrequests", "approval",
			filled(t, addOnCSR, "GROUP", "system:open-cluster-management:c1"), filled(t, addOnCSR, "GROUP", "x"), nil, true},
		{"approvals.addon-manager-controller", "certificatesigningrequests", "approval",
			filled(t, addOnCSR, "GROUP", "system:open-cluster-management:c2"), filled(t, addOnCSR, "GROUP", "x"), nil, false},
		{"service-accounts.addon-manager-controller", "serviceaccounts", "", filled(t, account), nil, cluster, true},
		{"service-accounts.addon-manager-controller", "serviceaccounts", "", filled(t, account), nil, other, false},
		{"roles.addon-manager-controller", "roles", "", filled(t, token, "ACCOUNT", "a-agent"), nil, cluster, true},
		{"roles.addon-manager-controller", "roles", "", filled(t, token, "ACCOUNT", "admin"), nil, cluster, false},
		{"roles.addon-manager-controller", "roles", "", filled(t, token, "ACCOUNT", "b-agent"), nil, cluster, false},
		{"roles.addon-manager-controller", "roles", "", filled(t, token, "ACCOUNT", ""), nil, cluster, false},
		{"roles.addon-manager-controller", "roles", "", filled(t, token, "ACCOUNT", "a-agent"), nil, other, false},
		{"role-bindings.addon-manager-controller", "rolebindings", "", boundTo("Group", "", anAddOn), nil, other, true},
		{"role-bindings.addon-manager-controller", "rolebindings", "", boundTo("ServiceAccount", "c1", "a-agent"), nil, other, true},
		{"role-bindings.addon-manager-controller", "rolebindings", "", boundTo("User", "", "system:serviceaccount:c1:a-agent"), nil, other, true},
		{"role-bindings.addon-manager-controller", "rolebindings", "", boundTo("ServiceAccount", "attacker", "a-agent"), nil, other, false},
		{"role-bindings.addon-manager-controller", "rolebindings", "", boundTo("ServiceAccount", "c1", "x-agent"), nil, other, false},
		{"role-bindings.addon-manager-controller", "rolebindings", "", boundTo("ServiceAccount", "c1", "addon-manager-controller-sa"), nil, other,
			false},
		{"role-bindings.addon-manager-controller", "rolebindings", "", boundTo("User", "", "system:serviceaccount:attacker:a-agent"), nil, other,
			false},
		{"role-bindings.addon-manager-controller", "rolebindings", "", boundTo("User", "", "ann"), nil, other, false},
		{"role-bindings.addon-manager-controller", "rolebindings", "", filled(t, bound, "NAMESPACE", "x", "ROLE", "edit", "KIND", "Group",
			"WHERE", "", "SUBJECT", anAddOn), nil, other, false},
		{"role-bindings.addon-manager-controller", "rolebindings", "", filled(t, bound, "NAMESPACE", "kube-system", "ROLE", "view", "KIND",
			"Group", "WHERE", "", "SUBJECT", anAddOn), nil, other, false},
		{"role-bindings.addon-manager-controller", "rolebindings", "",
			filled(t, bound, "NAMESPACE", "kube-system", "ROLE", "open-cluster-management:cluster-manager-addon-manager:controller", "KIND", "Group",
				"WHERE", "", "SUBJECT", anAddOn), nil, other, false},
		{"role-bindings.addon-manager-controller", "rolebindings", "",
			filled(t, tokens, "ROLE", "a-token-role", "SUBJECT", "system:open-cluster-management:c1"), nil, cluster, true},
		{"role-bindings.addon-manager-controller", "rolebindings", "",
			filled(t, tokens, "ROLE", "a-token-role", "SUBJECT", "open-cluster-management:c1"), nil, cluster, true},
		{"role-bindings.addon-manager-controller", "rolebindings", "",
			filled(t, tokens, "ROLE", "a-token-role", "SUBJECT", "system:open-cluster-management:c2"), nil, cluster, false},
		{"role-bindings.addon-manager-controller", "rolebindings", "",
			filled(t, tokens, "ROLE", "a-token-role", "SUBJECT", "system:open-cluster-management:c1"), nil, other, false},
		{"role-bindings.addon-manager-controller", "rolebindings", "",
			filled(t, tokens, "ROLE", "admin", "SUBJECT", "system:open-cluster-management:c1"), nil, cluster, false},
		{"addons.registration-controller", "managedclusteraddons", "status", filled(t, addOn, "STATUS", lost+", "+identity),
			filled(t, addOn, "STATUS", identity), nil, true},
		{"addons.registration-controller", "managedclusteraddons", "status", filled(t, addOn, "STATUS", lost), filled(t, addOn, "STATUS", ""),
			nil, true},
		{"addons.registration-controller", "managedclusteraddons", "status", filled(t, addOn, "STATUS", identity),
			filled(t, addOn, "STATUS", lost), nil, false},
		{"addons.registration-controller", "managedclusteraddons", "status", filled(t, addOn, "STATUS", lost+", "+identity),
			filled(t, addOn, "STATUS", strings.Replace(identity, "user: u", "user: v", 1)), nil, false},
		{"addons.registration-controller", "managedclusteraddons", "status", filled(t, addOn, "STATUS", lost),
			filled(t, addOn, "STATUS", identity), nil, false},
		{"clusters.registration-controller", "managedclusters", "", nil, filled(t, mc, "LABELS", ""), nil, false},
		{"clusters.registration-controller", "managedclusters", "", nil, filled(t, mc, "LABELS", "", "true", "false"), nil, true},
		{"placements.placement-controller", "placements", "", filled(t, set, "NAME", "p"), nil, nil, false},
		{"sets.work-controller", "manifestworkreplicasets", "", filled(t, set, "NAME", "p"), filled(t, set, "NAME", "p"), nil, true},
		{"sets.work-controller", "manifestworkreplicasets", "", filled(t, set, "NAME", "p"), filled(t, set, "NAME", "q"), nil, false},
		{"secrets.work-controller", "secrets", "", filled(t, secret, "TYPE", "capstan.io/manifestworkreplicaset-revision"), nil, nil, true},
		{"secrets.work-controller", "secrets", "", nil, filled(t, secret, "TYPE", "Opaque"), nil, false},
	} {
		p, found := policies[test.policy+".capstan.io"]
		if !found {
			t.Fatalf("there is no policy %s", test.policy)
		}
		if allowed := p.write(t, test.resource, test.subresource, test.object, test.old, test.namespace); allowed != test.allowed {
			t.Errorf("%s: write %v over %v: allowed %t", test.policy, test.object, test.old, allowed)
		}
	}
}

// GR-01, CM-12: the gRPC server requests certificates and tokens of agents alone, and the registration controllers approve what it requests
// of what a component of the hub requests.
func TestPoliciesOfGRPCServer(t *testing.T) {
	t.Parallel()
	server, hub := readPolicies(t, "grpc.yaml"), readPolicies(t, "policies.yaml")
	cluster := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "c1",
		Labels: map[string]string{"open-cluster-management.io/cluster-name": "c1"}}}
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}
	const (
		csr     = `{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: r, labels: {LABELS}, annotations: {NOTES}}, spec: {signerName: SIGNER, username: "USER", groups: ["system:serviceaccounts:open-cluster-management-hub"]}}`
		account = `{apiVersion: v1, kind: ServiceAccount, metadata: {name: NAME, namespace: c1}}`
		lease   = `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: NAME, namespace: c1}}`
		bySA    = "system:serviceaccount:open-cluster-management-hub:"
		ofAgent = "open-cluster-management.io/cluster-name: c1"
		ofAddOn = ofAgent + ", open-cluster-management.io/addon-name: a"
		forUser = "open-cluster-management.io/csr-user: u"
		byGRPC  = "open-cluster-management.io/grpc"
		ofKube  = "kubernetes.io/kube-apiserver-client"
	)
	const csrs = "certificatesigningrequests"
	requests, approvals := server["requests.grpc-server.capstan.io"], hub["approvals.registration-controller.capstan.io"]
	csrOf := func(signer, labels, notes, user string) *unstructured.Unstructured {
		return filled(t, csr, "SIGNER", signer, "LABELS", labels, "NOTES", notes, "USER", user)
	}
	for name, test := range map[string]struct {
		policy                policy
		resource, subresource string
		object                *unstructured.Unstructured
		namespace             *corev1.Namespace
		allowed               bool
	}{
		"agent":                {requests, csrs, "", csrOf(byGRPC, ofAgent, forUser, "u"), nil, true},
		"add-on":               {requests, csrs, "", csrOf(ofKube, ofAddOn, forUser, "u"), nil, true},
		"agent on the API":     {requests, csrs, "", csrOf(ofKube, ofAgent, forUser, "u"), nil, false},
		"no cluster":           {requests, csrs, "", csrOf(byGRPC, "", forUser, "u"), nil, false},
		"nobody":               {requests, csrs, "", csrOf(byGRPC, ofAgent, "", "u"), nil, false},
		"token":                {server["tokens.grpc-server.capstan.io"], "serviceaccounts", "token", filled(t, account, "NAME", "a-agent"), cluster, true},
		"token of another":     {server["tokens.grpc-server.capstan.io"], "serviceaccounts", "token", filled(t, account, "NAME", "admin"), cluster, false},
		"token elsewhere":      {server["tokens.grpc-server.capstan.io"], "serviceaccounts", "token", filled(t, account, "NAME", "a-agent"), other, false},
		"heartbeat":            {server["leases.grpc-server.capstan.io"], "leases", "", filled(t, lease, "NAME", "managed-cluster-lease"), cluster, true},
		"another lease":        {server["leases.grpc-server.capstan.io"], "leases", "", filled(t, lease, "NAME", "x"), cluster, false},
		"approved":             {approvals, csrs, "approval", csrOf(byGRPC, ofAgent, forUser, bySA+"grpc-server-sa"), nil, true},
		"asked for by another": {approvals, csrs, "approval", csrOf(byGRPC, ofAgent, forUser, bySA+"work-controller-sa"), nil, false},
		"for the API":          {approvals, csrs, "approval", csrOf(ofKube, ofAgent, forUser, bySA+"grpc-server-sa"), nil, false},
		"another signer":       {approvals, csrs, "approval", csrOf("example.com/a", ofAgent, forUser, bySA+"grpc-server-sa"), nil, false},
	} {
		if test.policy.compiled == nil {
			t.Fatalf("%s: there is no such policy", name)
		}
		if allowed := test.policy.write(t, test.resource, test.subresource, test.object, nil, test.namespace); allowed != test.allowed {
			t.Errorf("%s: allowed %t", name, allowed)
		}
	}
}
