package campaign

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/hub/addon/progress"
	addonconfig "github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// fleetOfTest are the users and the agents of a hub, which the test plays.
type fleetOfTest struct {
	config *rest.Config
	hub    client.Client
	// key is that of the agent of c1, and request is for a certificate of it.
	key     crypto.Signer
	request []byte
	// authority signs for the add-on greeter.
	authority authority
	// history is that of the present run.
	history *history
	// alive are the clusters whose agents run.
	alive map[string]bool
	// acknowledged are the sets of users, as the hub has said that it has stored them.
	acknowledged map[client.ObjectKey]*workv1alpha1.ManifestWorkReplicaSet
	// compared is how often the unfinished works of each rollout were compared with its maxConcurrency.
	compared map[string]int
}

const agentOfTest = "agent1"

func newFleet(config *rest.Config) (*fleetOfTest, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	subject := pkix.Name{CommonName: fleet.ClusterUser("c1", agentOfTest), Organization: fleet.ClusterGroups("c1")}
	request, err := cert.MakeCSR(key, &subject, nil, nil)
	if err != nil {
		return nil, err
	}
	signer, err := newAuthority()
	if err != nil {
		return nil, err
	}
	f := &fleetOfTest{config: rest.CopyConfig(config), key: key, request: request, authority: signer}
	f.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return fleetTransport{f, next} })
	f.hub, err = client.New(f.config, client.Options{Scheme: env.Scheme()})
	return f, err
}

// fleetTransport is how users and agents reach the hub.
type fleetTransport struct {
	*fleetOfTest
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper. No fault happens to these writes.
func (t fleetTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !isWrite(r) {
		return t.next.RoundTrip(r)
	}
	return t.history.send(t.next, r)
}

// begin begins a run.
func (f *fleetOfTest) begin(h *history) {
	f.history, f.alive, f.acknowledged = h, map[string]bool{}, map[client.ObjectKey]*workv1alpha1.ManifestWorkReplicaSet{}
	f.compared = map[string]int{}
}

// authority is a certification authority, in PEM.
type authority struct{ certificate, key []byte }

func newAuthority() (a authority, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return a, err
	}
	self, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "campaign"}, key)
	if err != nil {
		return a, err
	}
	if a.certificate, err = cert.EncodeCertificates(self); err != nil {
		return a, err
	}
	a.key, err = keyutil.MarshalPrivateKeyToPEM(key)
	return a, err
}

func objectOf(version, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func parse(documents string) (objects []*unstructured.Unstructured, err error) {
	for document := range strings.SplitSeq(documents, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &o.Object); err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

func (f *fleetOfTest) create(ctx context.Context, documents string) error {
	objects, err := parse(documents)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := f.hub.Create(ctx, o); err != nil {
			return err
		}
		if err := f.acknowledge(o); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes what create has made, the last first.
func (f *fleetOfTest) remove(ctx context.Context, documents string) error {
	objects, err := parse(documents)
	if err != nil {
		return err
	}
	for _, o := range slices.Backward(objects) {
		delete(f.acknowledged, client.ObjectKeyFromObject(o))
		if err := f.hub.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

func (f *fleetOfTest) editCluster(ctx context.Context, name string, change func(*clusterv1.ManagedCluster)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		c := &clusterv1.ManagedCluster{}
		if err := f.hub.Get(ctx, client.ObjectKey{Name: name}, c); err != nil {
			return err
		}
		change(c)
		return f.hub.Update(ctx, c)
	})
}

// createAs creates an object as another user.
func (f *fleetOfTest) createAs(ctx context.Context, o client.Object, user string, groups ...string) error {
	config := rest.CopyConfig(f.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, fleet.GroupAuthenticated)}
	c, err := client.New(config, client.Options{Scheme: f.hub.Scheme(), Mapper: f.hub.RESTMapper()})
	if err != nil {
		return err
	}
	return c.Create(ctx, o)
}

// joinUnasked is how somebody with a bootstrap credential creates a cluster that nobody accepts.
func (f *fleetOfTest) joinUnasked(ctx context.Context) error {
	return f.createAs(ctx, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}, "stranger", fleet.GroupBootstrap)
}

// requestCertificate is how the agent of c1 requests its first certificate, with the credential of a user who is trusted.
func (f *fleetOfTest) requestCertificate(ctx context.Context) error {
	return f.createAs(ctx, requestFor("c1-first", fleet.SignerKubeAPIServerClient, f.request), joiner, "system:masters")
}

// renew is how it requests the next one.
func (f *fleetOfTest) renew(ctx context.Context) error {
	return f.createAs(ctx, requestFor("c1-next", fleet.SignerKubeAPIServerClient, f.request), fleet.ClusterUser("c1", agentOfTest),
		fleet.ClusterGroups("c1")...)
}

// requestGRPCCertificate is how it requests a certificate for the gRPC server, with the credential of the same user.
func (f *fleetOfTest) requestGRPCCertificate(ctx context.Context) error {
	return f.createAs(ctx, requestFor("c1-grpc", fleet.SignerGRPC, f.request), joiner, "system:masters")
}

// certify is how it asks for the certificates of the add-on greeter, whose own signer has an authority now.
func (f *fleetOfTest) certify(ctx context.Context) error {
	if err := f.giveAuthority(ctx); err != nil {
		return err
	}
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	if err := f.hub.Get(ctx, client.ObjectKey{Namespace: "c1", Name: addOnOfTest}, addOn); err != nil {
		return err
	}
	if n := len(addOn.Status.Registrations); n != 2 {
		return fmt.Errorf("the add-on %s has %d registrations, want those of its AddOnTemplate, which has 2", addOn.Name, n)
	}
	for _, r := range addOn.Status.Registrations {
		csr, err := f.requestOf(r)
		if err != nil {
			return err
		}
		csr.Labels[fleet.LabelAddOnName] = addOn.Name
		if err := f.createAs(ctx, csr, fleet.ClusterUser("c1", agentOfTest), fleet.ClusterGroups("c1")...); err != nil {
			return err
		}
	}
	return nil
}

// giveAuthority writes the authority of the fleet into the Secret that the AddOnTemplate of greeter names.
func (f *fleetOfTest) giveAuthority(ctx context.Context) error {
	patch, err := json.Marshal(map[string]any{
		"data": map[string][]byte{corev1.TLSCertKey: f.authority.certificate, corev1.TLSPrivateKeyKey: f.authority.key}})
	if err != nil {
		return err
	}
	return f.hub.Patch(ctx, objectOf("v1", "Secret", "apps", "greeter-ca"), client.RawPatch(types.MergePatchType, patch))
}

// requestOf is the request for the certificate of a registration.
func (f *fleetOfTest) requestOf(r addonv1beta1.RegistrationConfig) (*certificatesv1.CertificateSigningRequest, error) {
	name, signer, subject := "c1-greeter", fleet.SignerKubeAPIServerClient, pkix.Name{}
	switch {
	case r.KubeClient != nil:
		subject.CommonName, subject.Organization = r.KubeClient.Subject.User, r.KubeClient.Subject.Groups
	case r.CustomSigner != nil:
		name, signer = "c1-greeter-own", r.CustomSigner.SignerName
		subject.CommonName, subject.Organization = r.CustomSigner.Subject.User, r.CustomSigner.Subject.Groups
	}
	request, err := cert.MakeCSR(f.key, &subject, nil, nil)
	if err != nil {
		return nil, err
	}
	return requestFor(name, signer, request), nil
}

// requestFor is a request of the agent of c1.
func requestFor(name, signer string, request []byte) *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelClusterName: "c1"}},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: request, SignerName: signer,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment,
				certificatesv1.UsageClientAuth}},
	}
}

// leaveArgo removes gitOps, by which Argo CD has got a Secret for each cluster.
func (f *fleetOfTest) leaveArgo(ctx context.Context) error {
	secrets := &corev1.SecretList{}
	made := client.MatchingLabels{fleet.LabelArgoImported: fleet.LabelTrue}
	if err := f.hub.List(ctx, secrets, client.InNamespace("apps"), made); err != nil {
		return err
	}
	if n := len(secrets.Items); n != 3 {
		return fmt.Errorf("there are %d Secrets for Argo CD in namespace apps, want one for each of 3 clusters", n)
	}
	return f.remove(ctx, gitOps)
}

func (f *fleetOfTest) removeRequests(ctx context.Context) error {
	return f.hub.DeleteAllOf(ctx, &certificatesv1.CertificateSigningRequest{})
}

// setLease says how often the agent of a cluster renews its lease.
func (f *fleetOfTest) setLease(ctx context.Context, cluster string, seconds int32) error {
	return f.editCluster(ctx, cluster, func(c *clusterv1.ManagedCluster) { c.Spec.LeaseDurationSeconds = seconds })
}

// isLost tells whether the hub has noticed that a cluster is silent.
func (f *fleetOfTest) isLost(ctx context.Context, cluster string) (bool, error) {
	c := &clusterv1.ManagedCluster{}
	err := f.hub.Get(ctx, client.ObjectKey{Name: cluster}, c)
	available := meta.FindStatusCondition(c.Status.Conditions, fleet.ConditionClusterAvailable)
	return available != nil && available.Status == metav1.ConditionUnknown, err
}

// act does what the agents that are alive would do next, and tells whether there was anything. What fails is done the next time.
func (f *fleetOfTest) act(ctx context.Context) (acted bool, err error) {
	clusters := &clusterv1.ManagedClusterList{}
	if err := f.hub.List(ctx, clusters); err != nil {
		return false, err
	}
	for i := range clusters.Items {
		c := &clusters.Items[i]
		if !f.alive[c.Name] {
			continue
		}
		for _, act := range []func(context.Context, *clusterv1.ManagedCluster) (bool, error){f.report, f.beat, f.work, f.serve} {
			did, err := act(ctx, c)
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				did, err = true, nil
			}
			if acted = acted || did; err != nil {
				return acted, err
			}
		}
	}
	return acted, nil
}

func accepted(c *clusterv1.ManagedCluster) bool {
	return c.Spec.HubAcceptsClient && meta.IsStatusConditionTrue(c.Status.Conditions, fleet.ConditionHubAccepted)
}

// report says how the cluster is.
func (f *fleetOfTest) report(ctx context.Context, c *clusterv1.ManagedCluster) (bool, error) {
	if !accepted(c) || meta.IsStatusConditionTrue(c.Status.Conditions, fleet.ConditionClusterAvailable) {
		return false, nil
	}
	before := c.DeepCopy()
	for _, kind := range []string{fleet.ConditionJoined, fleet.ConditionClusterAvailable} {
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test"})
	}
	c.Status.Version.Kubernetes = "v1.35.0"
	c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "id.k8s.io", Value: c.Name}}
	return true, f.hub.Status().Patch(ctx, c, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// beat renews the lease of the cluster.
func (f *fleetOfTest) beat(ctx context.Context, c *clusterv1.ManagedCluster) (bool, error) {
	lease := &coordinationv1.Lease{}
	err := f.hub.Get(ctx, client.ObjectKey{Namespace: c.Name, Name: fleet.ClusterNamespaceLease}, lease)
	if err != nil || !accepted(c) {
		return false, client.IgnoreNotFound(err)
	}
	now := metav1.NowMicro()
	if lease.Spec.RenewTime != nil && now.Sub(lease.Spec.RenewTime.Time) < 20*time.Second {
		return false, nil
	}
	lease.Spec.RenewTime = &now
	return false, f.hub.Update(ctx, lease)
}

// work reports of works that they are applied, and complete if they end by that, and lets go of those that are deleted.
func (f *fleetOfTest) work(ctx context.Context, c *clusterv1.ManagedCluster) (acted bool, err error) {
	works := &workv1.ManifestWorkList{}
	if err := f.hub.List(ctx, works, client.InNamespace(c.Name)); err != nil {
		return false, err
	}
	for i := range works.Items {
		w := &works.Items[i]
		before := w.DeepCopy()
		if w.DeletionTimestamp != nil {
			if controllerutil.RemoveFinalizer(w, fleet.FinalizerManifestWorkCleanup) {
				return true, f.hub.Patch(ctx, w, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
			}
			continue
		}
		if !accepted(c) {
			continue
		}
		if controllerutil.AddFinalizer(w, fleet.FinalizerManifestWorkCleanup) {
			return true, f.hub.Patch(ctx, w, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		}
		kinds := []string{fleet.ConditionApplied, fleet.ConditionAvailable}
		if w.Spec.DeleteOption != nil && w.Spec.DeleteOption.TTLSecondsAfterFinished != nil {
			kinds = append(kinds, fleet.ConditionComplete)
		}
		for _, kind := range kinds {
			meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test",
				ObservedGeneration: w.Generation})
		}
		now := meta.FindStatusCondition(before.Status.Conditions, fleet.ConditionAvailable)
		if now == nil || now.ObservedGeneration != w.Generation {
			if err := f.checkRollout(ctx, w); err != nil {
				return true, err
			}
			return true, f.hub.Status().Patch(ctx, w, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		}
	}
	return false, nil
}

// checkRollout fails if the set or the add-on of a work has more unfinished works than its rollout allows. It is called before each work is
// finished: whatever the controllers do at a time, too many works stay too many until then.
func (f *fleetOfTest) checkRollout(ctx context.Context, w *workv1.ManifestWork) error {
	if set := w.Labels[fleet.LabelManifestWorkReplicaSet]; set != "" {
		return f.checkWorks(ctx, rolloutOf(set), client.MatchingLabels{fleet.LabelManifestWorkReplicaSet: set})
	}
	if w.Labels[fleet.LabelAddOnName] != addOnOfTest {
		return nil
	}
	addOns := &addonv1beta1.ManagedClusterAddOnList{}
	if err := f.hub.List(ctx, addOns); err != nil {
		return err
	}
	if err := checkConcurrency(rolloutOfAddOn, "ManagedClusterAddOns", unfinishedAddOns(addOns.Items)); err != nil {
		return err
	}
	return f.checkWorks(ctx, rolloutOfAddOn, client.MatchingLabels{fleet.LabelAddOnName: addOnOfTest})
}

// rolloutOf names the rollout of a set, of which works have the label.
func rolloutOf(label string) string { return "ManifestWorkReplicaSet " + label }

const rolloutOfAddOn = "add-on " + addOnOfTest

func (f *fleetOfTest) checkWorks(ctx context.Context, what string, labels client.MatchingLabels) error {
	f.compared[what]++
	works := &workv1.ManifestWorkList{}
	if err := f.hub.List(ctx, works, labels); err != nil {
		return err
	}
	return checkConcurrency(what, "works", unfinished(works.Items))
}

func checkConcurrency(what, kind string, names []string) error {
	if len(names) <= rolloutConcurrency {
		return nil
	}
	return fmt.Errorf("the rollout of %s allows %d unfinished %s at a time, and there are %d: %s", what, rolloutConcurrency, kind, len(names),
		strings.Join(names, ", "))
}

// unfinished are the works whose agents have not reported that they are applied and available as they are now.
func unfinished(works []workv1.ManifestWork) (names []string) {
	for i := range works {
		w := &works[i]
		available := meta.FindStatusCondition(w.Status.Conditions, fleet.ConditionAvailable)
		if w.DeletionTimestamp == nil && (available == nil || available.ObservedGeneration != w.Generation) {
			names = append(names, w.Namespace+"/"+w.Name)
		}
	}
	return names
}

// unfinishedAddOns are the installations of the add-on that have got configurations and have not applied them as they are now. Those whose
// turn has not come have those of before, which they have applied, or none.
func unfinishedAddOns(addOns []addonv1beta1.ManagedClusterAddOn) (names []string) {
	for i := range addOns {
		a := &addOns[i]
		if a.Name != addOnOfTest || a.DeletionTimestamp != nil || slices.ContainsFunc(a.Status.ConfigReferences, addonconfig.IsPending) {
			continue
		}
		if !progress.IsApplied(a) {
			names = append(names, a.Namespace+"/"+a.Name)
		}
	}
	return names
}

// serve says of add-ons that nobody else knows that they are available, and that they use a token.
func (f *fleetOfTest) serve(ctx context.Context, c *clusterv1.ManagedCluster) (bool, error) {
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	err := f.hub.Get(ctx, client.ObjectKey{Namespace: c.Name, Name: "plain"}, addOn)
	if err != nil || !accepted(c) || meta.IsStatusConditionTrue(addOn.Status.Conditions, fleet.ConditionAvailable) {
		return false, client.IgnoreNotFound(err)
	}
	before := addOn.DeepCopy()
	if len(addOn.Status.Registrations) == 0 {
		addOn.Status.Registrations = []addonv1beta1.RegistrationConfig{{Type: addonv1beta1.KubeClient,
			KubeClient: &addonv1beta1.KubeClientConfig{Driver: addonv1beta1.KubeClientDriverToken}}}
	}
	meta.SetStatusCondition(&addOn.Status.Conditions, metav1.Condition{Type: fleet.ConditionAvailable, Status: metav1.ConditionTrue,
		Reason: "Test"})
	return true, f.hub.Status().Patch(ctx, addOn, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
