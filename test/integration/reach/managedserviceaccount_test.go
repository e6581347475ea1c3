package reach

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	permissionv1alpha1 "github.com/capstan-io/capstan/api/rbac/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

const isManagedServiceAccount = "authentication.open-cluster-management.io/is-managed-serviceaccount"

// enableAccounts enables the add-on on a cluster, in a namespace of its own on the managed cluster, which is returned.
func enableAccounts(t *testing.T, cluster string) (*addonv1beta1.ManagedClusterAddOn, string) {
	t.Helper()
	h, place := framework.Hub.Client(t), cluster+"-accounts"
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "managed-serviceaccount",
		Annotations: map[string]string{fleet.AnnotationInstallNamespace: place}}}
	framework.Create(t, h, addOn)
	return addOn, place
}

// awaitToken waits for a token in the Secret of the account that is not one of those before.
func awaitToken(t *testing.T, cluster, name string, before ...string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	return framework.AwaitObject(t, framework.Hub.Client(t), secret, func(secret *corev1.Secret) error {
		token := string(secret.Data["token"])
		for _, old := range before {
			if token == old {
				return fmt.Errorf("the token is still the one before")
			}
		}
		if token == "" {
			return fmt.Errorf("no token in %v", secret.Labels)
		}
		return nil
	})
}

// MS-01 MS-02 MS-03 MS-04 MS-06: a ManagedServiceAccount has a service account on the cluster and its token on the hub, which is replaced
// when it is lost or void, and both go with it, and with the add-on.
func TestManagedServiceAccount(t *testing.T) {
	t.Parallel()
	const cluster = "msa"
	env.Join(t, framework.Hub, framework.Managed, cluster)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	addOn, place := enableAccounts(t, cluster)
	framework.AwaitAddOn(t, addOn, "Available", metav1.ConditionTrue, "BuiltInRunning", place)
	framework.AwaitAddOn(t, addOn, "Progressing", metav1.ConditionFalse, "Completed", "")

	ci := framework.ManagedServiceAccount(cluster, "ci", 0)
	if err := h.Create(t.Context(), ci); !apierrors.IsInvalid(err) {
		t.Errorf("tokens for no time: %v", err)
	}
	ci = framework.ManagedServiceAccount(cluster, "ci", time.Hour)
	framework.Create(t, h, ci)
	secret := awaitToken(t, cluster, "ci")
	if who, err := framework.WhoOn(t, secret); err != nil || who != "system:serviceaccount:"+place+":ci" {
		t.Errorf("the token is of %q, %v", who, err)
	}
	if secret.Type != corev1.SecretTypeOpaque || secret.Labels[isManagedServiceAccount] != "true" || len(secret.Data) != 2 ||
		len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].UID != ci.UID {
		t.Errorf("the Secret: %+v", secret.ObjectMeta)
	}
	there := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: place, Name: "ci"}}
	framework.AwaitObject(t, m, there, func(*corev1.ServiceAccount) error { return nil })
	if there.Labels[isManagedServiceAccount] != "true" {
		t.Errorf("the service account: %+v", there.ObjectMeta)
	}
	framework.AwaitObject(t, h, ci, func(ci *authenticationv1beta1.ManagedServiceAccount) error {
		status := ci.Status
		if !meta.IsStatusConditionTrue(status.Conditions, "SecretCreated") || !meta.IsStatusConditionTrue(status.Conditions, "TokenReported") ||
			status.TokenSecretRef == nil || status.TokenSecretRef.Name != "ci" || status.ExpirationTimestamp == nil {
			return fmt.Errorf("status %+v", status)
		}
		if left := time.Until(status.ExpirationTimestamp.Time); left > time.Hour+time.Minute || left < 30*time.Minute {
			return fmt.Errorf("it expires in %s", left)
		}
		return nil
	})
	awaitAccountEvent(t, cluster, "ci", "TokenCreated")

	// Lost on the hub, gone on the cluster, and not to live as long any more: each makes a new token.
	tokens := []string{string(secret.Data["token"])}
	renewed := func() {
		t.Helper()
		secret = awaitToken(t, cluster, "ci", tokens...)
		tokens = append(tokens, string(secret.Data["token"]))
	}
	if err := h.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	renewed()
	if err := m.Delete(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	renewed()
	if _, err := framework.WhoOn(t, secret); err != nil {
		t.Errorf("the token of the new service account: %v", err)
	}
	framework.MergePatch(t, h, ci, `{"spec":{"rotation":{"validity":"20m"}}}`)
	renewed()
	framework.MergePatch(t, h, secret, `{"data":{"token":"bm8uaml0LnRva2Vu"}}`)
	renewed()
	awaitAccountEvent(t, cluster, "ci", "TokenRefreshed")

	// Another one of the same name is another one: the tokens of the first are void.
	before := secret.DeepCopy()
	if err := h.Delete(t.Context(), ci); err != nil {
		t.Fatal(err)
	}
	framework.Create(t, h, framework.ManagedServiceAccount(cluster, "ci", time.Hour))
	renewed()
	framework.AwaitTokenRefused(t, before)

	// It takes its account and Secret along.
	if err := h.Delete(t.Context(), framework.ManagedServiceAccount(cluster, "ci", 0)); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, m, there)
	framework.AwaitGone(t, h, secret)
	framework.AwaitTokenRefused(t, secret)

	// And so does the add-on, which takes the rights along, too.
	framework.Create(t, h, framework.ManagedServiceAccount(cluster, "last", time.Hour))
	last := awaitToken(t, cluster, "last")
	if err := h.Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	framework.AwaitTokenRefused(t, last)
	framework.AwaitGone(t, m, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: place, Name: "last"}})
	framework.AwaitGone(t, h, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "managed-serviceaccount-addon-agent"}})
	framework.AwaitGone(t, h, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster,
		Name: "managed-serviceaccount-addon-agent"}})
}

// MS-01 MS-04: tokens end also when the add-on is disabled while the agent does not run, in whichever namespace the accounts are, and the
// hub says at once that they do.
func TestManagedServiceAccountsDisabledWithoutAgent(t *testing.T) {
	t.Parallel()
	const cluster = "msadown"
	agent := env.Join(t, framework.Hub, framework.Managed, cluster)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	addOn, place := enableAccounts(t, cluster)
	framework.Create(t, h, framework.ManagedServiceAccount(cluster, "ci", time.Hour))
	secret := awaitToken(t, cluster, "ci")
	ci := framework.ManagedServiceAccount(cluster, "ci", 0)
	framework.AwaitObject(t, h, ci, func(a *authenticationv1beta1.ManagedServiceAccount) error {
		if !meta.IsStatusConditionTrue(a.Status.Conditions, "TokenReported") {
			return fmt.Errorf("status %+v", a.Status)
		}
		return nil
	})
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := h.Delete(t.Context(), addOn); err != nil {
		t.Fatal(err)
	}
	awaitAccount(t, cluster, "ci", "managed-serviceaccount is not enabled on cluster "+cluster)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitTokenRefused(t, secret)
	framework.AwaitGone(t, m, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: place, Name: "ci"}})
}

// MS-01 MS-02 MS-03: who knows the first version of the API makes, reads and changes accounts by it, which are the same in the second.
func TestManagedServiceAccountInFirstVersion(t *testing.T) {
	t.Parallel()
	const cluster, name = "msafirst", "ci"
	env.Join(t, framework.Hub, framework.Managed, cluster)
	h := framework.Hub.Client(t)
	addOn, _ := enableAccounts(t, cluster)
	framework.AwaitAddOn(t, addOn, "Available", metav1.ConditionTrue, "BuiltInRunning", "")
	first := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"rotation": map[string]any{"validity": "1h"}}}}
	first.SetAPIVersion("authentication.open-cluster-management.io/v1alpha1")
	first.SetKind("ManagedServiceAccount")
	first.SetNamespace(cluster)
	first.SetName(name)
	framework.Create(t, h, first)
	before := awaitToken(t, cluster, name)
	framework.AwaitObject(t, h, first, func(account *unstructured.Unstructured) error {
		if secret, _, _ := unstructured.NestedString(account.Object, "status", "tokenSecretRef", "name"); secret != name {
			return fmt.Errorf("status %v", account.Object["status"])
		}
		return nil
	})
	framework.MergePatch(t, h, first, `{"spec":{"rotation":{"validity":"20m"}}}`)
	awaitToken(t, cluster, name, string(before.Data["token"]))
	second := framework.ManagedServiceAccount(cluster, name, 0)
	err := h.Get(t.Context(), client.ObjectKeyFromObject(second), second)
	if validity := second.Spec.Rotation.Validity.Duration; err != nil || validity != 20*time.Minute {
		t.Errorf("in the second version, its tokens are valid for %s, %v", validity, err)
	}
	if err := h.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, second)
}

func awaitAccountEvent(t *testing.T, cluster, name, reason string) {
	t.Helper()
	h := framework.Hub.Client(t)
	env.Eventually(t, func(ctx context.Context) error {
		events := &eventsv1.EventList{}
		if err := h.List(ctx, events, client.InNamespace(cluster)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == reason && e.Regarding.Kind == "ManagedServiceAccount" && e.Regarding.Name == name {
				return nil
			}
		}
		return fmt.Errorf("no event %s among %d", reason, len(events.Items))
	})
}

func awaitAccount(t *testing.T, cluster, name, words string) {
	t.Helper()
	account := framework.ManagedServiceAccount(cluster, name, 0)
	framework.AwaitObject(t, framework.Hub.Client(t), account, func(a *authenticationv1beta1.ManagedServiceAccount) error {
		condition := meta.FindStatusCondition(a.Status.Conditions, "TokenReported")
		if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != "TokenReportFailed" ||
			!strings.Contains(condition.Message, words) {
			return fmt.Errorf("want %q, have %+v", words, condition)
		}
		return nil
	})
}

// MS-02: what is not the agent's stays as it is, on the cluster and on the hub: no token leaves for a service account that somebody else
// made, whatever its name.
func TestManagedServiceAccountOfAnother(t *testing.T) {
	t.Parallel()
	const cluster = "msaother"
	env.Join(t, framework.Hub, framework.Managed, cluster)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	addOn, place := enableAccounts(t, cluster)
	framework.AwaitAddOn(t, addOn, "Available", metav1.ConditionTrue, "BuiltInRunning", place)
	framework.Create(t, m, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: place}})
	privileged := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: place, Name: "privileged"}}
	framework.Create(t, m, privileged)
	framework.Create(t, h, framework.ManagedServiceAccount(cluster, "privileged", time.Hour))
	awaitAccount(t, cluster, "privileged", "choose another name")
	awaitAccountEvent(t, cluster, "privileged", "TokenReportFailed")
	if err := h.Get(t.Context(), client.ObjectKey{Namespace: cluster, Name: "privileged"}, &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("there is a token: %v", err)
	}
	if err := h.Delete(t.Context(), framework.ManagedServiceAccount(cluster, "privileged", 0)); err != nil {
		t.Fatal(err)
	}
	framework.Create(t, h, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "taken"}},
		framework.ManagedServiceAccount(cluster, "taken", time.Hour))
	awaitAccount(t, cluster, "taken", "delete it, or choose another name")
	if err := m.Get(t.Context(), client.ObjectKeyFromObject(privileged), privileged); err != nil {
		t.Errorf("the service account of another: %v", err)
	}
}

// limitedAgent returns a kubeconfig for the managed cluster with what an agent needs, except for service accounts.
func limitedAgent(t *testing.T, name string) string {
	t.Helper()
	m := framework.Managed.Client(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "namespaces", "secrets", "configmaps", "events"}, Verbs: []string{"*"}},
		{APIGroups: []string{"work.open-cluster-management.io", "cluster.open-cluster-management.io", "coordination.k8s.io",
			"apiextensions.k8s.io", "about.k8s.io", "events.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	}}
	framework.Create(t, m, account, role, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}}})
	config, err := framework.Managed.Config()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := framework.KubeconfigOfAccount(t.Context(), m, config, account)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// MS-02: an agent that may not get tokens says so, and gets them once it may.
func TestManagedServiceAccountWithoutRights(t *testing.T) {
	t.Parallel()
	const cluster = "msarights"
	m := framework.Managed.Client(t)
	agent := env.NewAgent(t, framework.Hub, framework.Managed, cluster, "", "--spoke-kubeconfig", limitedAgent(t, cluster))
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, framework.Hub.Client(t), cluster)
	framework.AwaitHubAccepted(t, framework.Hub.Client(t), cluster, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted)
	framework.Create(t, framework.Hub.Client(t), framework.ManagedServiceAccount(cluster, "early", time.Hour))
	addOn, place := enableAccounts(t, cluster)
	framework.AwaitAddOn(t, addOn, "Available", metav1.ConditionFalse, "BuiltInFailed", "serviceaccounts")
	grant := func(name string, rules ...rbacv1.PolicyRule) {
		t.Helper()
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: cluster + "-" + name}, Rules: rules}
		framework.Create(t, m, role, &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: cluster}}})
	}
	grant("accounts", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"},
		Verbs: []string{"get", "list", "watch", "create", "delete"}})
	framework.AwaitAddOn(t, addOn, "Available", metav1.ConditionTrue, "BuiltInRunning", place)
	framework.Create(t, framework.Hub.Client(t), framework.ManagedServiceAccount(cluster, "ci", time.Hour))
	awaitAccount(t, cluster, "ci", "serviceaccounts/token")
	grant("tokens", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}})
	if who, err := framework.WhoOn(t, awaitToken(t, cluster, "ci")); err != nil || who != "system:serviceaccount:"+place+":ci" {
		t.Errorf("the token is of %q, %v", who, err)
	}
	awaitToken(t, cluster, "early") // which was there before the add-on
}

// A12: a token lives for a day. A ClusterPermission gives its account rights on the cluster, and takes them when it goes, or gives others.
func TestClusterPermission(t *testing.T) {
	t.Parallel()
	const cluster = "clusterpermission"
	env.Join(t, framework.Hub, framework.Managed, cluster)
	h := framework.Hub.Client(t)
	_, place := enableAccounts(t, cluster)
	permission := &permissionv1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: cluster}}
	permission.Spec.ClusterRole = &permissionv1alpha1.ClusterRole{Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list"}}}}
	permission.Spec.ClusterRoleBinding = &permissionv1alpha1.ClusterRoleBinding{Subject: &rbacv1.Subject{
		APIGroup: "authentication.open-cluster-management.io", Kind: "ManagedServiceAccount", Name: "ci"}}
	for what, spoil := range map[string]func(*permissionv1alpha1.ClusterPermission){
		"at least one of":            func(p *permissionv1alpha1.ClusterPermission) { p.Spec = permissionv1alpha1.ClusterPermissionSpec{} },
		"needs clusterRole":          func(p *permissionv1alpha1.ClusterPermission) { p.Spec.ClusterRole = nil },
		"either subject or subjects": func(p *permissionv1alpha1.ClusterPermission) { p.Spec.ClusterRoleBinding.Subject = nil },
		"has the kind ClusterRole": func(p *permissionv1alpha1.ClusterPermission) {
			p.Spec.ClusterRoleBinding.RoleRef = &permissionv1alpha1.RoleRef{Kind: "Role", Name: "x"}
		},
	} {
		bad := permission.DeepCopy()
		spoil(bad)
		framework.ExpectRefusal(t, h.Create(t.Context(), bad), apierrors.IsInvalid, what)
	}
	framework.Create(t, h, permission)
	applied := func(status metav1.ConditionStatus, words string) {
		t.Helper()
		framework.AwaitObject(t, h, permission, func(p *permissionv1alpha1.ClusterPermission) error {
			condition := meta.FindStatusCondition(p.Status.Conditions, "AppliedRBACManifestWork")
			if condition == nil || condition.Status != status || !strings.Contains(condition.Message, words) {
				return fmt.Errorf("want %s %q, have %+v", status, words, condition)
			}
			return nil
		})
	}
	applied(metav1.ConditionFalse, "there is no ManagedServiceAccount ci in namespace "+cluster+": create it")
	plain := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"rotation": map[string]any{}}}}
	plain.SetGroupVersionKind(authenticationv1beta1.GroupVersion.WithKind("ManagedServiceAccount"))
	plain.SetNamespace(cluster)
	plain.SetName("ci")
	framework.Create(t, h, plain)
	applied(metav1.ConditionTrue, "ManifestWork "+cluster)
	secret := awaitToken(t, cluster, "ci")
	framework.AwaitObject(t, h, framework.ManagedServiceAccount(cluster, "ci", 0), func(a *authenticationv1beta1.ManagedServiceAccount) error {
		if ends := a.Status.ExpirationTimestamp; ends == nil || time.Until(ends.Time) > 25*time.Hour {
			return fmt.Errorf("a token that nobody asked to live for long: %+v", a.Status)
		}
		return nil
	})
	lists := func(want func(error) bool) {
		t.Helper()
		env.Eventually(t, func(ctx context.Context) error {
			if err := env.ClientFor(t, framework.AccountConfig(t, secret)).List(ctx, &corev1.NamespaceList{}); !want(err) {
				return fmt.Errorf("%s/ci lists namespaces: %w", place, err)
			}
			return nil
		})
	}
	lists(func(err error) bool { return err == nil })
	if err := env.ClientFor(t, framework.AccountConfig(t, secret)).List(t.Context(), &corev1.SecretList{}); !apierrors.IsForbidden(err) {
		t.Errorf("the account lists secrets: %v", err)
	}
	bind := func(role *permissionv1alpha1.RoleRef) {
		t.Helper()
		env.Eventually(t, func(ctx context.Context) error {
			if err := h.Get(ctx, client.ObjectKeyFromObject(permission), permission); err != nil {
				return err
			}
			permission.Spec.ClusterRoleBinding.RoleRef = role
			return h.Update(ctx, permission)
		})
	}
	bind(&permissionv1alpha1.RoleRef{Kind: "ClusterRole", Name: "system:discovery"}) // which grants nothing of that
	lists(apierrors.IsForbidden)
	bind(nil)
	lists(func(err error) bool { return err == nil })
	if err := h.Delete(t.Context(), permission); err != nil {
		t.Fatal(err)
	}
	lists(apierrors.IsForbidden)
}

// MS-06: of the Secrets in the namespace of its cluster, an agent sees and writes those of ManagedServiceAccounts, and no others.
func TestAgentsAndSecrets(t *testing.T) {
	t.Parallel()
	const cluster = "msasecrets"
	framework.AcceptAll(t, cluster)
	h := framework.Hub.Client(t)
	addOn, _ := enableAccounts(t, cluster)
	framework.AwaitAddOn(t, addOn, "RegistrationApplied", metav1.ConditionTrue, "SetPermissionApplied", "")
	agent := framework.AsAgent(t, framework.Hub, cluster)
	env.Eventually(t, func(ctx context.Context) error {
		return agent.List(ctx, &corev1.SecretList{}, client.InNamespace(cluster))
	})
	owner := framework.ManagedServiceAccount(cluster, "ci", time.Hour)
	framework.Create(t, h, owner)
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "other"}, StringData: map[string]string{"password": "p"}}
	framework.Create(t, h, other)
	token := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name,
			Labels: map[string]string{isManagedServiceAccount: "true"}, OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "authentication.open-cluster-management.io/v1beta1", Kind: "ManagedServiceAccount", Name: owner.Name, UID: owner.UID}}},
			Data: map[string][]byte{"token": []byte("t")}}
	}
	framework.Create(t, agent, token("ci"))
	seen := &corev1.SecretList{}
	if err := agent.List(t.Context(), seen, client.InNamespace(cluster)); err != nil || len(seen.Items) != 1 || seen.Items[0].Name != "ci" {
		t.Errorf("the agent sees %d, %v", len(seen.Items), err)
	}
	if err := agent.Get(t.Context(), client.ObjectKeyFromObject(other), other.DeepCopy()); !apierrors.IsNotFound(err) {
		t.Errorf("the agent reads another Secret: %v", err)
	}
	if err := agent.List(t.Context(), seen, client.InNamespace(cluster), client.MatchingFields{"metadata.name": "other"}); err != nil ||
		len(seen.Items) > 0 {
		t.Errorf("the agent finds another Secret: %d, %v", len(seen.Items), err)
	}
	plain := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "plain"}}
	framework.ExpectRefusal(t, agent.Create(t.Context(), plain), apierrors.IsForbidden, "metadata.labels")
	ofTheHub := token("ci2")
	ofTheHub.OwnerReferences[0].Name, ofTheHub.Type = "ci2", corev1.SecretTypeServiceAccountToken
	ofTheHub.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
	framework.ExpectRefusal(t, agent.Create(t.Context(), ofTheHub), apierrors.IsForbidden, "type: it is")
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil {
		t.Fatal(err)
	}
	taken := token("other")
	taken.ResourceVersion, taken.OwnerReferences[0].Name = other.ResourceVersion, "other"
	framework.ExpectRefusal(t, agent.Update(t.Context(), taken), apierrors.IsForbidden, "not of a ManagedServiceAccount")
	if err := agent.Delete(t.Context(), token("ci")); !apierrors.IsForbidden(err) {
		t.Errorf("the agent deletes a Secret: %v", err)
	}
	// The agent of another cluster has nothing there.
	const stranger = "msasecrets-other"
	framework.AcceptAll(t, stranger)
	err := framework.AsAgent(t, framework.Hub, stranger).Get(t.Context(), client.ObjectKeyFromObject(token("ci")), &corev1.Secret{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("the agent of another cluster reads a token: %v", err)
	}
}
