package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/cluster-inventory-api/client/clientset/versioned"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

const syncToProfile = "authentication.open-cluster-management.io/sync-to-clusterprofile"

// profiled is a cluster with a ClusterProfile in a namespace, and its ManagedServiceAccount reader.
type profiled struct {
	*framework.Proxied
	namespace             string
	ManagedServiceAccount *authenticationv1beta1.ManagedServiceAccount
}

// CP-12, MS-07, NX-03: a client finds in the ClusterProfile where the cluster is, its credential plugin prints the token that the hub has
// copied there, and with both the library of the SIG lists what the cluster lets the service account list.
func TestClusterProfileAccess(t *testing.T) {
	t.Parallel()
	on := env.StartHub(t, "", "--feature-gates", "ClusterProfile=true")
	p := newProfiled(t, on, "profile-access")
	provider := p.awaitProvider(t)
	want := framework.AsAdmin(t, on).Host + "/apis/cluster.open-cluster-management.io/v1/managedclusters/" + p.Name + "/proxy"
	if provider.Server != want {
		t.Errorf("the server is %s, want %s", provider.Server, want)
	}
	secret := p.awaitCopy(t)
	if len(secret.Data) != 2 || secret.Labels["authentication.open-cluster-management.io/synced-from"] != p.Name+"-reader" ||
		secret.OwnerReferences[0].Kind != "ClusterProfile" || secret.OwnerReferences[0].Name != p.Name {
		t.Errorf("the copy: %+v", secret.ObjectMeta)
	}
	testOwnCredential(t, p)
	testCredentialPlugin(t, p)
	testTokensAtTheHub(t, p, provider, string(secret.Data["token"]))
	testOtherProviders(t, p)
	testCopiesFollow(t, p)
}

// newProfiled joins a cluster to the hub, with the add-ons, a set that is bound, and a service account that may list namespaces there.
func newProfiled(t *testing.T, on *env.Server, name string) *profiled {
	t.Helper()
	h := on.Client(t)
	p := &profiled{Proxied: framework.NewProxied(t, on, name), namespace: framework.Namespace(t, h, name+"-team"),
		ManagedServiceAccount: framework.ManagedServiceAccount(name, "reader", time.Hour)}
	place := name + "-accounts"
	binding := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "global"}}
	binding.Spec.ClusterSet = "global"
	p.ManagedServiceAccount.Labels = map[string]string{syncToProfile: "true"}
	framework.Create(t, h, binding, &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name,
		Name:        "managed-serviceaccount",
		Annotations: map[string]string{fleet.AnnotationInstallNamespace: place}}}, p.ManagedServiceAccount)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name + "-reader"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods", "namespaces"}, Verbs: []string{"list"}}}}
	framework.Create(t, framework.Managed.Client(t), role, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name + "-reader"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: place, Name: "reader"}}})
	return p
}

func (p *profiled) profile() *multiclusterv1alpha1.ClusterProfile {
	return &multiclusterv1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.Name}}
}

// awaitProvider returns what the profile says about the way to the cluster.
func (p *profiled) awaitProvider(t *testing.T) *clientcmdv1.Cluster {
	t.Helper()
	cluster := &clientcmdv1.Cluster{}
	framework.AwaitObject(t, p.On.Client(t), p.profile(), func(profile *multiclusterv1alpha1.ClusterProfile) error {
		for _, entry := range profile.Status.AccessProviders {
			if entry.Name == "open-cluster-management" {
				return json.Unmarshal(entry.Cluster.Raw, cluster)
			}
		}
		return fmt.Errorf("there is no such access provider in %+v", profile.Status)
	})
	return cluster
}

func (p *profiled) copied() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.Name + "-reader"}}
}

// awaitCopy waits until the copy has the token of the account.
func (p *profiled) awaitCopy(t *testing.T) *corev1.Secret {
	t.Helper()
	h, token := p.On.Client(t), &corev1.Secret{}
	return framework.AwaitObject(t, h, p.copied(), func(secret *corev1.Secret) error {
		if err := h.Get(t.Context(), client.ObjectKeyFromObject(p.ManagedServiceAccount), token); err != nil {
			return err
		}
		if len(token.Data["token"]) == 0 || string(secret.Data["token"]) != string(token.Data["token"]) {
			return fmt.Errorf("the copy has not the token of the account")
		}
		return nil
	})
}

// configOf is what the SIG's own library makes of the profile and the credential plugin of the client.
func (p *profiled) configOf(t *testing.T, args ...string) *rest.Config {
	t.Helper()
	plugin, err := env.Binary("capstan")
	if err != nil {
		t.Fatal(err)
	}
	inventory, err := versioned.NewForConfig(framework.AsAdmin(t, p.On))
	if err != nil {
		t.Fatal(err)
	}
	profile, err := inventory.ApisV1alpha1().ClusterProfiles(p.namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := access.New([]access.Provider{{Name: "open-cluster-management", ExecConfig: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: plugin, ProvideClusterInfo: true,
		Args: append([]string{"credentials", "--kubeconfig", p.On.Kubeconfig, "--namespace", p.namespace}, args...),
	}}}).BuildConfigFromCP(profile)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// testOwnCredential: with no more than the credential for the hub, the library is the user of the hub on the cluster.
func testOwnCredential(t *testing.T, p *profiled) {
	t.Helper()
	c := kubernetes.NewForConfigOrDie(p.configOf(t))
	review, err := c.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	user := review.Status.UserInfo.Username
	if !strings.HasPrefix(user, "cluster:hub:") {
		t.Errorf("on the cluster it is %q", user)
	}
	if _, err := c.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list the pods of the cluster without the right to: %v", err)
	}
	framework.Create(t, framework.Managed.Client(t), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: p.Name + "-own"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: p.Name + "-reader"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}})
	env.Eventually(t, func(ctx context.Context) error {
		_, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		return err
	})
}

// testCredentialPlugin: client-go runs the plugin, and is the service account on the cluster.
func testCredentialPlugin(t *testing.T, p *profiled) {
	t.Helper()
	c := kubernetes.NewForConfigOrDie(p.configOf(t, "--managed-serviceaccount", "reader"))
	if _, err := c.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list the pods of the cluster: %v", err)
	}
	review, err := c.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username != "system:serviceaccount:"+p.Name+"-accounts:reader" {
		t.Errorf("on the cluster it is %q, %v", review.Status.UserInfo.Username, err)
	}
	other := kubernetes.NewForConfigOrDie(p.configOf(t, "--managed-serviceaccount", "other"))
	if _, err := other.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("without a token, there are pods")
	}
	p.On.Capstan(t, "", "credentials", "--managed-serviceaccount", "reader").Ends(t, 1, "KUBERNETES_EXEC_INFO")
}

// testTokensAtTheHub: a token of the cluster leads to the API server of the cluster, and is worth nothing else on the hub.
func testTokensAtTheHub(t *testing.T, p *profiled, provider *clientcmdv1.Cluster, token string) {
	t.Helper()
	with := func(host, token string) *rest.Config {
		return &rest.Config{Host: host, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: provider.CertificateAuthorityData}}
	}
	hubHost, _, _ := strings.Cut(provider.Server, "/apis/")
	const clusters = "/apis/cluster.open-cluster-management.io/v1/managedclusters"
	services := "/api/v1/namespaces/default/services/https:kubernetes:443/proxy-service/version"
	for what, test := range map[string]struct {
		config *rest.Config
		path   string
		header http.Header
	}{
		"the hub itself":         {with(hubHost, token), clusters, nil},
		"the cluster's object":   {with(hubHost, token), clusters + "/" + p.Name, nil},
		"a port of the cluster":  {with(hubHost, token), clusters + "/" + p.Name + "/portforward", nil},
		"a service":              {with(provider.Server, token), services, nil},
		"a forged token":         {with(provider.Server, token[:len(token)-4]+"AAAA"), "/api/v1/namespaces", nil},
		"an opaque token":        {with(provider.Server, "opaque"), "/api/v1/namespaces", nil},
		"no token":               {with(provider.Server, ""), "/api/v1/namespaces", nil},
		"somebody else's rights": {with(provider.Server, token), "/api/v1/namespaces", http.Header{"Impersonate-User": {"system:admin"}}},
	} {
		code, answer := p.Send(t, test.config, http.MethodGet, test.path, test.header, "")
		if code != http.StatusUnauthorized && code != http.StatusForbidden {
			t.Errorf("%s: %d %s", what, code, answer)
		}
	}
}

// testOtherProviders: entries of others stay, and ours goes with the add-on.
func testOtherProviders(t *testing.T, p *profiled) {
	t.Helper()
	h := p.On.Client(t)
	other := multiclusterv1alpha1.AccessProvider{Name: "other"}
	other.Cluster.Raw = []byte(`{"server":"https://192.0.2.1"}`)
	env.Eventually(t, func(ctx context.Context) error {
		profile := p.profile()
		if err := h.Get(ctx, client.ObjectKeyFromObject(profile), profile); err != nil {
			return err
		}
		profile.Status.AccessProviders = append(profile.Status.AccessProviders, other)
		return h.Status().Update(ctx, profile)
	})
	names := func(want string) {
		t.Helper()
		framework.AwaitObject(t, h, p.profile(), func(profile *multiclusterv1alpha1.ClusterProfile) error {
			var have []string
			for _, entry := range profile.Status.AccessProviders {
				have = append(have, entry.Name)
			}
			if strings.Join(have, " ") != want {
				return fmt.Errorf("the access providers are %v", have)
			}
			return nil
		})
	}
	if err := h.Delete(t.Context(), p.AddOn()); err != nil {
		t.Fatal(err)
	}
	names("other")
	env.Eventually(t, func(ctx context.Context) error { return h.Create(ctx, p.AddOn()) })
	framework.AwaitObject(t, h, p.profile(), func(profile *multiclusterv1alpha1.ClusterProfile) error {
		if len(profile.Status.AccessProviders) != 2 {
			return fmt.Errorf("the access providers are %+v", profile.Status.AccessProviders)
		}
		return nil
	})
}

// testCopiesFollow: the copy has each new token, is not where the hub does not present the cluster, and leaves Secrets of others alone.
func testCopiesFollow(t *testing.T, p *profiled) {
	t.Helper()
	h := p.On.Client(t)
	secret := p.awaitCopy(t)
	if err := h.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.Name, Name: "reader"}}); err != nil {
		t.Fatal(err)
	}
	framework.AwaitObject(t, h, p.copied(), func(after *corev1.Secret) error {
		if string(after.Data["token"]) == string(secret.Data["token"]) {
			return fmt.Errorf("the copy has the token of before")
		}
		return nil
	})
	p.awaitCopy(t)
	framework.MergePatch(t, h, p.copied(), `{"data":{"token":"bm9uZQ=="}}`)
	p.awaitCopy(t)

	// The agent may not ask for copies, and who may write profiles gets none by making one.
	agent := env.ClientFor(t, p.Agent.HubConfig(t))
	unlabelled := framework.ManagedServiceAccount(p.Name, "unlabelled", time.Hour)
	framework.Create(t, h, unlabelled)
	label := framework.Merge(`{"metadata":{"labels":{"` + syncToProfile + `":"true"}}}`)
	if err := agent.Patch(t.Context(), unlabelled.DeepCopy(), label); !apierrors.IsForbidden(err) {
		t.Errorf("the agent labels an account: %v", err)
	}
	if err := agent.Status().Patch(t.Context(), unlabelled.DeepCopy(), label); err == nil {
		framework.Get(t, h, client.ObjectKeyFromObject(unlabelled), unlabelled)
		if unlabelled.Labels[syncToProfile] != "" {
			t.Error("the agent labels an account by its status")
		}
	}
	forged := &multiclusterv1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: framework.Namespace(t, h, p.Name+"-thief"),
		Name:       p.Name,
		Finalizers: []string{"example.com/stays"}}}
	forged.Spec.ClusterManager.Name = "open-cluster-management"
	framework.Create(t, h, forged)
	framework.AwaitObject(t, h, forged, func(profile *multiclusterv1alpha1.ClusterProfile) error {
		if profile.DeletionTimestamp.IsZero() {
			return fmt.Errorf("the hub has not deleted the profile")
		}
		return nil
	})
	stolen := &corev1.SecretList{}
	if err := h.List(t.Context(), stolen, client.InNamespace(forged.Namespace)); err != nil || len(stolen.Items) != 0 {
		t.Errorf("next to a forged profile, there is %+v, %v", stolen.Items, err)
	}

	// A Secret of somebody else stays as it is.
	framework.MergePatch(t, h, p.ManagedServiceAccount, `{"metadata":{"labels":{"`+syncToProfile+`":null}}}`)
	framework.AwaitGone(t, h, p.copied())
	own := p.copied()
	own.Data = map[string][]byte{"token": []byte("own")}
	framework.Create(t, h, own)
	framework.MergePatch(t, h, p.ManagedServiceAccount, `{"metadata":{"labels":{"`+syncToProfile+`":"true"}}}`)
	env.Eventually(t, func(ctx context.Context) error {
		events := &eventsv1.EventList{}
		if err := h.List(ctx, events, client.InNamespace(p.Name)); err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.Reason == fleet.EventTokenNotCopied && strings.Contains(event.Note, own.Namespace+"/"+own.Name) {
				return nil
			}
		}
		return fmt.Errorf("no event says that the token is not copied")
	})
	framework.Get(t, h, client.ObjectKeyFromObject(own), own)
	if string(own.Data["token"]) != "own" {
		t.Error("the Secret of somebody else is overwritten")
	}
	if err := h.Delete(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	framework.MergePatch(t, h, p.ManagedServiceAccount, `{"metadata":{"labels":{"`+syncToProfile+`":"false"}}}`)
	framework.MergePatch(t, h, p.ManagedServiceAccount, `{"metadata":{"labels":{"`+syncToProfile+`":"true"}}}`)
	p.awaitCopy(t)
	if err := h.Delete(t.Context(), p.ManagedServiceAccount); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, p.copied())
}
