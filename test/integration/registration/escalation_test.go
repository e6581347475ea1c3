package registration

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// R10: an agent sees the certificate requests of its own cluster, however it asks.
func TestAgentSeesItsOwnRequests(t *testing.T) {
	t.Parallel()
	const own, other = "csr-own", "csr-other"
	framework.AcceptAll(t, own, other)
	admin := framework.Hub.Client(t)
	config := framework.WithCertificate(t, framework.Hub, framework.AgentSubject(own, "agent1"), framework.OfCluster(own))
	agent := env.ClientFor(t, config)
	mine, _ := framework.NewRequest(t, framework.AgentSubject(own, "agent2"), framework.OfCluster(own))
	foreign, _ := framework.NewRequest(t, framework.AgentSubject(other, "agent1"), framework.OfCluster(other))
	unlabelled, _ := framework.NewRequest(t, pkix.Name{CommonName: "ann"}, nil)
	framework.Create(t, admin, foreign, unlabelled, mine)

	for what, options := range map[string][]client.ListOption{
		"everything":            nil,
		"everything, as stored": {&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}},
		"page by page":          {client.Limit(1)},
		"its own":               {client.MatchingLabels(framework.OfCluster(own))},
		"another's":             {client.MatchingLabels(framework.OfCluster(other))},
		"another's by name":     {client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", foreign.Name)}},
	} {
		for _, list := range []client.ObjectList{&certificatesv1.CertificateSigningRequestList{}, metadataOfRequests()} {
			if err := agent.List(t.Context(), list, options...); err != nil {
				t.Errorf("list %s: %v", what, err)
			}
			for _, name := range namesOfOthers(t, list, own) {
				t.Errorf("an agent that lists %s sees %s", what, name)
			}
		}
	}
	all := &certificatesv1.CertificateSigningRequestList{}
	if err := agent.List(t.Context(), all); err != nil || len(all.Items) != 2 {
		t.Errorf("an agent sees %d of the 2 requests of its cluster: %v", len(all.Items), err)
	}
	if err := agent.Get(t.Context(), client.ObjectKeyFromObject(mine), mine.DeepCopy()); err != nil {
		t.Errorf("get its own request: %v", err)
	}
	for _, csr := range []*certificatesv1.CertificateSigningRequest{foreign, unlabelled} {
		if err := agent.Get(t.Context(), client.ObjectKeyFromObject(csr), csr.DeepCopy()); !apierrors.IsNotFound(err) {
			t.Errorf("get the request of another: %v", err)
		}
	}
	checkWatch(t, config, own)
}

func metadataOfRequests() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequestList"))
	return list
}

// namesOfOthers are the listed requests without the label of the cluster.
func namesOfOthers(t *testing.T, list client.ObjectList, cluster string) (names []string) {
	t.Helper()
	check := func(o client.Object) {
		if o.GetLabels()[fleet.LabelClusterName] != cluster {
			names = append(names, o.GetName())
		}
	}
	switch list := list.(type) {
	case *certificatesv1.CertificateSigningRequestList:
		for i := range list.Items {
			check(&list.Items[i])
		}
	case *metav1.PartialObjectMetadataList:
		for i := range list.Items {
			check(&list.Items[i])
		}
	default:
		t.Fatalf("a list of type %T", list)
	}
	return names
}

// checkWatch watches all requests, both ways that there are, until one comes that was made after the others.
func checkWatch(t *testing.T, config *rest.Config, own string) {
	t.Helper()
	agent, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	last, _ := framework.NewRequest(t, framework.AgentSubject(own, "agent3"), framework.OfCluster(own))
	framework.Create(t, framework.Hub.Client(t), last)
	for _, path := range []string{"certificatesigningrequests", "watch/certificatesigningrequests"} {
		w, err := agent.CertificatesV1().RESTClient().Get().AbsPath("/apis/certificates.k8s.io/v1/"+path).Param("watch",
			"true").Watch(t.Context())
		if err != nil {
			t.Fatalf("watch %s: %v", path, err)
		}
		for event := range env.Events(t, w) {
			csr, ok := event.Object.(*certificatesv1.CertificateSigningRequest)
			if !ok {
				t.Errorf("watch %s: %+v", path, event)
				break
			}
			if csr.Labels[fleet.LabelClusterName] != own {
				t.Errorf("an agent that watches %s sees %s with labels %v", path, csr.Name, csr.Labels)
			}
			if csr.Name == last.Name {
				break
			}
		}
		w.Stop()
	}
}

// R10 SC-19: who joins looks at what it knows the name of, and changes nothing.
func TestJoiningSeesNoFleet(t *testing.T) {
	t.Parallel()
	const cluster = "joining-sees"
	framework.AcceptAll(t, cluster)
	for who, token := range map[string]string{"a bootstrap token": framework.Hub.BootstrapToken(t),
		"the bootstrap service account": bootstrapAccountToken(t, framework.Hub)} {
		joiner := env.ClientFor(t, withToken(t, framework.Hub, token))
		one := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", cluster)}
		mc := &clusterv1.ManagedCluster{}
		for what, err := range map[string]error{
			"get a cluster":    joiner.Get(t.Context(), client.ObjectKey{Name: cluster}, mc),
			"list one cluster": joiner.List(t.Context(), &clusterv1.ManagedClusterList{}, one),
			"list the requests of one": joiner.List(t.Context(), &certificatesv1.CertificateSigningRequestList{},
				client.MatchingLabels(framework.OfCluster(cluster))),
			"read where the hub is": joiner.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespacePublic, Name: "cluster-info"},
				&corev1.ConfigMap{}),
			"read whom to trust": joiner.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespacePublic, Name: "kube-root-ca.crt"},
				&corev1.ConfigMap{}),
			"create a cluster, not accepted,": joiner.Create(t.Context(),
				&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{GenerateName: "joining-"}}),
		} {
			if err != nil {
				t.Errorf("%s cannot %s: %v", who, what, err)
			}
		}
		accepted := framework.AcceptedCluster("")
		accepted.GenerateName = "joining-"
		for what, err := range map[string]error{
			"list the clusters": joiner.List(t.Context(), &clusterv1.ManagedClusterList{}),
			"list the requests": joiner.List(t.Context(), &certificatesv1.CertificateSigningRequestList{}),
			"read another ConfigMap": joiner.Get(t.Context(),
				client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "extension-apiserver-authentication"}, &corev1.ConfigMap{}),
			"update a cluster":              joiner.Update(t.Context(), mc),
			"patch a cluster":               joiner.Patch(t.Context(), mc.DeepCopy(), framework.Merge(`{"metadata":{"labels":{"a":"b"}}}`)),
			"patch the status of a cluster": joiner.Status().Patch(t.Context(), mc.DeepCopy(), framework.Merge(`{"status":{"capacity":{"cpu":"1"}}}`)),
			"delete a cluster":              joiner.Delete(t.Context(), mc.DeepCopy()),
			"create a cluster, accepted,":   joiner.Create(t.Context(), accepted),
			"read the works of a cluster":   joiner.List(t.Context(), &workv1.ManifestWorkList{}, client.InNamespace(cluster)),
			"renew the lease of a cluster": joiner.Patch(t.Context(),
				&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: fleet.ClusterNamespaceLease}}, framework.Merge(`{}`)),
			"read the tokens to join with": joiner.List(t.Context(), &corev1.SecretList{}, client.InNamespace(metav1.NamespaceSystem)),
			"make tokens for its own": joiner.SubResource("token").Create(t.Context(),
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceOperators, Name: fleet.ServiceAccountBootstrap}},
				&authenticationv1.TokenRequest{}),
			"read the namespaces of the hub": joiner.List(t.Context(), &corev1.NamespaceList{}),
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s may %s: %v", who, what, err)
			}
		}
	}
}

// R10, RG-13, RG-15: whatever else an agent asks for than its own identity, it does not get.
func TestForgedRequests(t *testing.T) {
	t.Parallel()
	const own, other = "forge-own", "forge-other"
	framework.AcceptAll(t, own, other)
	admin := framework.Hub.Client(t)
	agent := framework.AsAgent(t, framework.Hub, own)
	self := framework.AgentSubject(own, "agent1")
	with := func(organizations ...string) pkix.Name {
		return pkix.Name{CommonName: self.CommonName, Organization: append(slices.Clone(self.Organization), organizations...)}
	}
	for name, forged := range map[string]struct {
		subject  pkix.Name
		labels   map[string]string
		dnsNames []string
		change   func(*certificatesv1.CertificateSigningRequest)
		// refused is what the hub says at once; without it, the request is left for a person.
		refused string
	}{
		"system:masters": {subject: with("system:masters"), labels: framework.OfCluster(own), refused: "system:masters"},
		"label of another": {subject: self, labels: framework.OfCluster(other),
			refused: `label open-cluster-management.io/cluster-name="forge-other"`},
		"no label":                 {subject: self, refused: `label open-cluster-management.io/cluster-name=""`},
		"renewal for another":      {subject: framework.AgentSubject(other, "agent1"), labels: framework.OfCluster(other), refused: "label"},
		"name of another cluster":  {subject: framework.AgentSubject(other, "agent1"), labels: framework.OfCluster(own)},
		"name of another agent":    {subject: framework.AgentSubject(own, "agent2"), labels: framework.OfCluster(own)},
		"name of nobody's":         {subject: pkix.Name{CommonName: "admin", Organization: fleet.ClusterGroups(own)}, labels: framework.OfCluster(own)},
		"group of another cluster": {subject: with(fleet.ClusterGroup(other)), labels: framework.OfCluster(own)},
		"another group":            {subject: with("admins"), labels: framework.OfCluster(own)},
		"no group":                 {subject: pkix.Name{CommonName: self.CommonName}, labels: framework.OfCluster(own)},
		"name of a server":         {subject: self, labels: framework.OfCluster(own), dnsNames: []string{"hub.example.com"}},
		"as an add-on":             {subject: self, labels: map[string]string{fleet.LabelClusterName: own, fleet.LabelAddOnName: "a"}},
		"to sign with": {subject: self, labels: framework.OfCluster(own),
			change: usages(certificatesv1.UsageClientAuth, certificatesv1.UsageCertSign)},
		"to serve with": {subject: self, labels: framework.OfCluster(own),
			change: usages(certificatesv1.UsageClientAuth, certificatesv1.UsageServerAuth)},
		"for nothing": {subject: self, labels: framework.OfCluster(own), change: usages(certificatesv1.UsageDigitalSignature)},
		"by the signer of kubelets": {subject: self, labels: framework.OfCluster(own), change: func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
		}},
		"in the name of an admin": {subject: self, labels: framework.OfCluster(own), change: func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Username, r.Spec.Groups = framework.AgentSubject(own, "agent2").CommonName, []string{"system:masters"}
			r.Spec.Request = mustRequest(t, framework.AgentSubject(own, "agent2"))
		}},
		"approved already": {subject: framework.AgentSubject(own, "agent2"), labels: framework.OfCluster(own),
			change: func(r *certificatesv1.CertificateSigningRequest) {
				r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved,
					Status: corev1.ConditionTrue, Reason: "Me"}}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			csr, _ := framework.NewRequest(t, forged.subject, forged.labels, forged.dnsNames...)
			if forged.change != nil {
				forged.change(csr)
			}
			err := agent.Create(t.Context(), csr)
			if forged.refused != "" {
				framework.ExpectRefusal(t, err, apierrors.IsForbidden, forged.refused)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := env.Approve(t.Context(), agent, csr.DeepCopy()); !apierrors.IsForbidden(err) {
				t.Errorf("an agent approves a request: %v", err)
			}
			// What is created later is decided later.
			awaitRenewal(t, agent, self, own)
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil {
				t.Fatal(err)
			}
			if len(csr.Status.Conditions)+len(csr.Status.Certificate) > 0 {
				t.Errorf("the hub decided %+v", csr.Status.Conditions)
			}
		})
	}
}

func usages(usages ...certificatesv1.KeyUsage) func(*certificatesv1.CertificateSigningRequest) {
	return func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Usages = usages }
}

func mustRequest(t *testing.T, subject pkix.Name) []byte {
	t.Helper()
	csr, _ := framework.NewRequest(t, subject, nil)
	return csr.Spec.Request
}

// awaitRenewal renews the agent's own certificate.
func awaitRenewal(t *testing.T, agent client.Client, self pkix.Name, cluster string) {
	t.Helper()
	csr, _ := framework.NewRequest(t, self, framework.OfCluster(cluster))
	framework.Create(t, agent, csr)
	env.Eventually(t, func(ctx context.Context) error {
		if err := agent.Get(ctx, client.ObjectKeyFromObject(csr), csr); err != nil {
			return err
		}
		if len(csr.Status.Certificate) == 0 {
			return fmt.Errorf("the renewal is not signed: %+v", csr.Status)
		}
		return nil
	})
}

// R10, WH-05, WH-07, WH-11: an agent changes of its own what is its to change, and of others nothing.
func TestAgentEscalation(t *testing.T) {
	t.Parallel()
	const own, other = "escalate-own", "escalate-other"
	framework.AcceptAll(t, own, other)
	framework.Create(t, framework.Hub.Client(t), framework.Work(own, own+"-w", framework.ConfigMap("default", "escalate", "x")))
	config := framework.WithCertificate(t, framework.Hub, framework.AgentSubject(own, "agent1"), framework.OfCluster(own))
	agent := env.ClientFor(t, config)
	update := func(change func(*clusterv1.ManagedCluster)) error {
		var err error
		env.Eventually(t, func(ctx context.Context) error {
			mc := &clusterv1.ManagedCluster{}
			if err := agent.Get(ctx, client.ObjectKey{Name: own}, mc); err != nil {
				return err
			}
			change(mc)
			if err = agent.Update(ctx, mc); apierrors.IsConflict(err) {
				return err
			}
			return nil
		})
		return err
	}
	if err := update(func(mc *clusterv1.ManagedCluster) {
		mc.Spec.ManagedClusterClientConfigs = []clusterv1.ClientConfig{{URL: "https://own.example.com"}}
		metav1.SetMetaDataAnnotation(&mc.ObjectMeta, fleet.AnnotationAgentPrefix+"a", "b")
	}); err != nil {
		t.Errorf("an agent says how to reach its cluster: %v", err)
	}
	for part, change := range map[string]func(*clusterv1.ManagedCluster){
		"metadata.labels":             func(mc *clusterv1.ManagedCluster) { mc.Labels["env"] = "prod" },
		`ManagedClusterSet "default"`: func(mc *clusterv1.ManagedCluster) { mc.Labels[fleet.LabelClusterSet] = "prod" },
		"metadata.finalizers":         func(mc *clusterv1.ManagedCluster) { mc.Finalizers = nil },
		"metadata.annotations": func(mc *clusterv1.ManagedCluster) {
			metav1.SetMetaDataAnnotation(&mc.ObjectMeta, fleet.AnnotationDeletionTimeout, "0s")
		},
		"cannot change spec":                 func(mc *clusterv1.ManagedCluster) { mc.Spec.LeaseDurationSeconds = 3600 },
		"cannot update the HubAcceptsClient": func(mc *clusterv1.ManagedCluster) { mc.Spec.HubAcceptsClient = false },
	} {
		framework.ExpectRefusal(t, update(change), apierrors.IsForbidden, part)
	}

	another := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: other}}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: fleet.ClusterNamespaceLease}}
	root := rest.CopyConfig(config)
	root.Impersonate = rest.ImpersonationConfig{UserName: "root", Groups: []string{"system:masters"}}
	masquerade := rest.CopyConfig(config)
	masquerade.Impersonate = rest.ImpersonationConfig{UserName: framework.AgentSubject(other, "agent1").CommonName,
		Groups: fleet.ClusterGroups(other)}
	for what, err := range map[string]error{
		"patch the status of another cluster": agent.Status().Patch(t.Context(), another.DeepCopy(),
			framework.Merge(`{"status":{"capacity":{"cpu":"1"}}}`)),
		"patch another cluster":      agent.Patch(t.Context(), another.DeepCopy(), framework.Merge(`{"metadata":{"labels":{"a":"b"}}}`)),
		"delete another cluster":     agent.Delete(t.Context(), another.DeepCopy()),
		"renew the lease of another": agent.Patch(t.Context(), lease, framework.Merge(`{"spec":{"leaseDurationSeconds":1}}`)),
		"create an accepted cluster": agent.Create(t.Context(), framework.AcceptedCluster("escalate-third")),
		"grant itself a role": agent.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "escalate"},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}}),
		"get a token of a service account": agent.SubResource("token").Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "default"}}, &authenticationv1.TokenRequest{}),
		"act as an administrator":   env.ClientFor(t, root).List(t.Context(), &corev1.SecretList{}),
		"act as another cluster":    env.ClientFor(t, masquerade).List(t.Context(), &workv1.ManifestWorkList{}, client.InNamespace(other)),
		"create a work for another": agent.Create(t.Context(), framework.Work(other, "planted", framework.ConfigMap("default", "planted", "x"))),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("an agent may %s: %v", what, err)
		}
	}
	executor := `{"spec":{"executor":{"subject":{"type":"ServiceAccount","serviceAccount":{"namespace":"kube-system","name":"admin"}}}}}`
	framework.ExpectRefusal(t, agent.Patch(t.Context(), framework.Work(own, own+"-w"), framework.Merge(executor)), apierrors.IsBadRequest,
		"cannot manipulate the Manifestwork with executor")
}

// WH-07, WH-08: right on the object itself does not make up for that to join or to bind a set.
func TestSetsNeedPermission(t *testing.T) {
	t.Parallel()
	const user, cluster, namespace = "sets-user", "sets-permission", "sets-permission-team"
	admin := framework.Hub.Client(t)
	framework.Create(t, admin,
		&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{clusterAPI}, Resources: []string{"managedclusters", "managedclustersetbindings"}, Verbs: []string{"*"},
		}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}})
	c := env.ClientFor(t, framework.WithCertificate(t, framework.Hub, pkix.Name{CommonName: user}, nil))
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	env.Eventually(t, func(ctx context.Context) error {
		return c.Patch(ctx, mc.DeepCopy(), framework.Merge(`{"metadata":{"labels":{"a":"b"}}}`)) // until the role is in force
	})
	framework.ExpectRefusal(t, c.Patch(t.Context(), mc.DeepCopy(),
		framework.Merge(`{"metadata":{"labels":{"`+fleet.LabelClusterSet+`":"prod"}}}`)),
		apierrors.IsForbidden, `from ManagedClusterSet "default"`)
	framework.ExpectRefusal(t, c.Patch(t.Context(), mc.DeepCopy(), framework.Merge(`{"spec":{"hubAcceptsClient":true}}`)),
		apierrors.IsForbidden, "HubAcceptsClient")
	framework.ExpectRefusal(t, c.Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "sets-joining"}}),
		apierrors.IsForbidden, `ManagedClusterSet "default"`)
	framework.ExpectRefusal(t, c.Create(t.Context(), &clusterv1beta2.ManagedClusterSetBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"},
		Spec:       clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: "default"},
	}), apierrors.IsForbidden, `not allowed to bind cluster set "default"`)
}
