package clustermanager

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	deployhub "github.com/capstan-io/capstan/deploy/hub"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/remote"
	"github.com/capstan-io/capstan/internal/operator/servingcerts"
	"github.com/capstan-io/capstan/internal/rights/rightstest"
	"github.com/capstan-io/capstan/internal/upgrade"
)

// installedAt is when the hubs of the tests were installed.
var installedAt = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// formerHost is that of the certificate of a hub that another version has installed.
const formerHost = "former.example.svc"

// CM-03, CM-19: what is installed of a hub that is refused by now has its certificates and tokens renewed, but gets no others, and no token
// of an account of the same name elsewhere. Of one that is not installed, there is nothing to renew.
func TestRefusedHubIsRenewed(t *testing.T) {
	t.Parallel()
	const known, unknown, former = fleet.ServiceAccountRegistrationController, fleet.ServiceAccountPlacementController,
		fleet.ServiceAccountAddOnManager
	account := func(name string) client.Object {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "hosted", Name: name, UID: "now"}}
	}
	kubeconfig := func(account, uid string) runtime.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "hosted", Name: accountSecret(account)}, Data: map[string][]byte{
			"serviceaccount_namespace": []byte("hosted"), "serviceaccount_name": []byte(account), "serviceaccount_uid": []byte(uid)}}
	}
	resident := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "resident"}}
	cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "hosted",
		Annotations: map[string]string{fleet.AnnotationInstalledMode: string(operatorv1.InstallModeHosted)}}}
	hostedAt("hub.example.com")(cm)
	c, applied := renewing(t, 25, installedCertificates(t, cm), kubeconfig(known, "now"), kubeconfig(former, "before"))
	hub := clusterWith("b", resident, account(known), account(unknown), account(former))
	p := newPlanned(cm, inputs{namespace: "hosted"})
	_, err := c.renewFor(t.Context(), p, hub, &rest.Config{Host: "https://hub.example.com"})
	if err == nil || !strings.Contains(err.Error(), "take its finalizers off and delete it") {
		t.Errorf("refused: %v", err)
	}
	for name, want := range map[string]bool{fleet.SecretSigner: true, fleet.ConfigMapCABundle: true, fleet.SecretWorkServing: true,
		fleet.SecretGRPCServing: false, accountSecret(known): true, accountSecret(unknown): false, accountSecret(former): false} {
		if _, isRenewed := applied[name]; isRenewed != want {
			t.Errorf("%s is renewed: %t", name, isRenewed)
		}
	}
	delete(cm.Annotations, fleet.AnnotationInstalledMode)
	clear(applied)
	if due, err := c.renew(t.Context(), cm); due != 0 || err != nil || len(applied) > 0 {
		t.Errorf("not installed: due in %s, %v, renewed: %v", due, err, applied)
	}
}

// CM-23, CA-41: whatever an installed hub is refused for, its certificates are renewed in time, for the hosts that they have, and its API
// server trusts them; while that cannot be told of another authority, the authority stays. What is said of the refusal stays.
func TestCertificatesOfRefusedHub(t *testing.T) {
	t.Parallel()
	hostedUnreachable := func(cm *operatorv1.ClusterManager) {
		cm.Annotations[fleet.AnnotationInstalledMode] = string(operatorv1.InstallModeHosted)
		cm.Spec.DeployOption.Mode = operatorv1.InstallModeHosted
	}
	for name, test := range map[string]struct {
		edit        func(*operatorv1.ClusterManager)
		reason      string
		unreachable bool
	}{
		"a version": {edit: func(cm *operatorv1.ClusterManager) { cm.Annotations[upgrade.AnnotationVersion] = "v1.4.0" },
			reason: frame.ReasonVersionRefused},
		"another mode": {edit: func(cm *operatorv1.ClusterManager) { cm.Spec.DeployOption.Mode = operatorv1.InstallModeHosted },
			reason: fleet.ReasonHubResourceApplyFailed},
		"a wrong ARN": {edit: func(cm *operatorv1.ClusterManager) {
			cm.Spec.RegistrationConfiguration = &operatorv1.RegistrationHubConfiguration{RegistrationDrivers: []operatorv1.RegistrationDriverHub{
				{AuthType: operatorv1.RegistrationAuthTypeAWSIRSA, AwsIrsa: &operatorv1.AwsIrsaConfig{HubClusterARN: "hub"}}}}
		}, reason: fleet.ReasonHubResourceApplyFailed},
		"hosted, without addresses and a hub": {edit: hostedUnreachable, reason: fleet.ReasonHubResourceApplyFailed, unreachable: true},
		"hosted, without a hub": {edit: func(cm *operatorv1.ClusterManager) {
			hostedUnreachable(cm)
			hostedAt("hub.example.com")(cm)
		}, reason: fleet.ReasonHubResourceApplyFailed, unreachable: true},
	} {
		for _, days := range []int{25, 300} { // when the serving certificate, and the authority, are due
			cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "indigo",
				Annotations: map[string]string{fleet.AnnotationInstalledMode: string(operatorv1.InstallModeDefault)}}}
			test.edit(cm)
			certificates := installedCertificates(t, cm)
			c, applied := renewing(t, days, slices.Concat(certificates, calling(t, cm)))
			due, err := c.installOrRenew(t.Context(), cm)
			if (err != nil) != test.unreachable || (due > 0) == test.unreachable {
				t.Errorf("%s, %d days: due in %s, %v", name, days, due, err)
			}
			condition := meta.FindStatusCondition(cm.Status.Conditions, fleet.ConditionApplied)
			if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != test.reason {
				t.Errorf("%s, %d days: applied: %v", name, days, condition)
			}
			serving := certificateIn(t, applied[fleet.SecretWorkServing])
			if !serving.NotAfter.After(c.Clock.Now()) || !slices.Equal(serving.DNSNames, []string{formerHost}) {
				t.Errorf("%s, %d days: the certificate is for %v until %s", name, days, serving.DNSNames, serving.NotAfter)
			}
			authority := certificateIn(t, applied[fleet.SecretSigner])
			isNew := authority.NotBefore.After(installedAt)
			if isNew != (days == 300 && !test.unreachable) || serving.CheckSignatureFrom(authority) != nil {
				t.Errorf("%s, %d days: the authority is new: %t", name, days, isNew)
			}
			if bundle := applied[fleet.ConfigMapCABundle]; !test.unreachable {
				content, _, _ := unstructured.NestedString(bundle, "data", fleet.KeyCABundle)
				checkTrusted(t, c, cm, content)
			}
		}
	}
}

// CM-20, CM-23: what runs of a hub is renewed until what users have stored is removed: the controllers clean up after it, and the API
// server calls the webhooks about what they write. Why it is not removed is said all the same.
func TestHubIsRenewedWhileItGoes(t *testing.T) {
	t.Parallel()
	for _, mode := range []operatorv1.InstallMode{operatorv1.InstallModeDefault, operatorv1.InstallModeHosted} {
		cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "indigo",
			Annotations: map[string]string{fleet.AnnotationInstalledMode: string(mode)}}}
		c, applied := renewing(t, 25, installedCertificates(t, cm), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "indigo",
			Name: fleet.SecretExternalHubKubeconfig}})
		if _, err := c.removeAll(t.Context(), cm); err == nil {
			t.Errorf("%s: a hub is removed that cannot be seen", mode)
		}
		if serving := certificateIn(t, applied[fleet.SecretWorkServing]); !serving.NotBefore.After(installedAt) {
			t.Errorf("%s: the certificate is good from %s to %s", mode, serving.NotBefore, serving.NotAfter)
		}
		clear(applied)
		failure := errors.New("a webhook answers nothing")
		if _, err := c.renewUnremoved(t.Context(), cm, "", failure); !errors.Is(err, failure) || applied[fleet.SecretWorkServing] == nil {
			t.Errorf("%s: %v, renewed: %v", mode, err, applied)
		}
	}
}

// CM-20: a removal says what it waits for, or why it fails, also while what runs cannot be renewed, and what keeps it from that. While it
// waits, it looks again soon.
func TestRemovalThatCannotRenew(t *testing.T) {
	t.Parallel()
	const unrenewed = "; what runs cannot be renewed: there is no Secret indigo/external-hub-kubeconfig"
	for name, test := range map[string]struct {
		waitsFor  string
		unremoved error
		want      string
	}{
		"waits": {waitsFor: "ManagedClusters c1 (finalizers: a.test/stay)", want: "Waits for ManagedClusters c1 (finalizers: a.test/stay)"},
		"fails": {unremoved: errors.New("a webhook refuses it"), want: "a webhook refuses it"},
	} {
		cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "indigo",
			Annotations: map[string]string{fleet.AnnotationInstalledMode: string(operatorv1.InstallModeHosted)}}}
		c, _ := renewing(t, 25, installedCertificates(t, cm))
		waitsFor, err := c.renewUnremoved(t.Context(), cm, test.waitsFor, test.unremoved)
		if !errors.Is(err, test.unremoved) {
			t.Errorf("%s: %v", name, err)
		}
		reportRemoval(cm, waitsFor, err)
		condition := meta.FindStatusCondition(cm.Status.Conditions, fleet.ConditionProgressing)
		if condition == nil || !strings.HasPrefix(condition.Message, test.want+unrenewed) {
			t.Errorf("%s: %v", name, condition)
		}
	}
}

// CM-03, CM-20, CM-23: a hub that does not answer is asked once, however what it needs is renewed: the certificates are on the management
// cluster, and are renewed all the same. One that answers with an error is reached.
func TestSilentHubIsAskedOnce(t *testing.T) {
	t.Parallel()
	cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "hosted",
		Annotations: map[string]string{fleet.AnnotationInstalledMode: string(operatorv1.InstallModeHosted)}}}
	kubeconfig := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "hosted",
		Name: accountSecret(fleet.ServiceAccountRegistrationController)}, Data: map[string][]byte{
		"serviceaccount_namespace": []byte("hosted"), "serviceaccount_name": []byte(fleet.ServiceAccountRegistrationController)}}
	for name, test := range map[string]struct {
		answer  error
		reached bool
	}{
		"silent":     {answer: &url.Error{Op: "Get", URL: "https://hub.example.com", Err: context.DeadlineExceeded}},
		"not silent": {answer: apierrors.NewUnauthorized("who is it?"), reached: true},
	} {
		asked := 0
		hub := &apply.Cluster{Client: fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				asked++
				return test.answer
			}}).Build()}
		c, applied := renewing(t, 25, installedCertificates(t, cm), kubeconfig)
		if _, err := c.renewFor(t.Context(), c.plannedOf(cm), hub, &rest.Config{}); !errors.Is(err, test.answer) {
			t.Errorf("%s: %v", name, err)
		}
		if (asked > 1) != test.reached || applied[fleet.SecretWorkServing] == nil {
			t.Errorf("%s: asked %d times, renewed %d objects", name, asked, len(applied))
		}
		_, failure := c.unlessResident(t.Context(), cm, hub)
		asked = 0
		clear(applied)
		// There is no Secret that leads to the hub, so that it fails to connect.
		_, err := c.renewAfter(t.Context(), cm, fmt.Errorf("the removal fails: %w", failure))
		if (err != nil) != test.reached || asked > 0 || applied[fleet.SecretWorkServing] == nil {
			t.Errorf("%s, after a removal: %v, renewed %d objects", name, err, len(applied))
		}
	}
}

// installedCertificates are those with which the webhooks of a hub serve.
func installedCertificates(t *testing.T, cm *operatorv1.ClusterManager) []client.Object {
	t.Helper()
	certificates, err := servingcerts.Renew(installedAt, namespaceOf(cm), authorityName,
		[]servingcerts.Server{
			{Secret: fleet.SecretRegistrationServing, Hosts: []string{formerHost}},
			{Secret: fleet.SecretWorkServing, Hosts: []string{formerHost}},
			{Secret: fleet.SecretAddOnServing, Hosts: []string{formerHost}},
		}, servingcerts.Stored{})
	if err != nil {
		t.Fatal(err)
	}
	all := append([]client.Object{certificates.Authority, certificates.Bundle}, objects(certificates.Serving)...)
	for _, object := range all {
		object.SetLabels(map[string]string{fleet.LabelCreatedByClusterManager: cm.Name})
	}
	return all
}

// calling are what has the API server of a hub call webhooks, with an authority that is not that of now.
func calling(t *testing.T, cm *operatorv1.ClusterManager) (all []client.Object) {
	t.Helper()
	p := newPlanned(cm, inputs{namespace: namespaceOf(cm)})
	for _, configuration := range p.webhooks().configurations(deployhub.Names{Namespace: p.namespace, ClusterManager: p.Name}) {
		for _, config := range clientConfigs(configuration) {
			config.CABundle = []byte("old")
		}
		all = append(all, configuration)
	}
	for _, crd := range p.crds() {
		if config := conversionConfig(crd); config != nil {
			config.CABundle = []byte("old")
			return append(all, crd)
		}
	}
	t.Fatal("no CRD has a conversion")
	return nil
}

// checkTrusted checks that all that calls webhooks trusts the authorities.
func checkTrusted(t *testing.T, c *Controller, cm *operatorv1.ClusterManager, authorities string) {
	t.Helper()
	for _, object := range calling(t, cm) {
		if err := c.Management.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		var trusted [][]byte
		for _, config := range clientConfigs(object) {
			trusted = append(trusted, config.CABundle)
		}
		if crd, isCRD := object.(*apiextensionsv1.CustomResourceDefinition); isCRD {
			trusted = append(trusted, conversionConfig(crd).CABundle)
		}
		if len(trusted) == 0 || slices.ContainsFunc(trusted, func(b []byte) bool { return !bytes.Equal(b, []byte(authorities)) }) {
			t.Errorf("%T %s trusts %s", object, object.GetName(), trusted)
		}
	}
}

// certificateIn is that of a Secret.
func certificateIn(t *testing.T, secret map[string]any) *x509.Certificate {
	t.Helper()
	encoded, _, _ := unstructured.NestedString(secret, "data", corev1.TLSCertKey)
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(content)
	if block == nil {
		t.Fatalf("there is no certificate in %v", secret)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// renewing is the controller some days after the installation, with what there is in its cluster and Secrets that it follows, and what it
// applies by the names.
func renewing(t *testing.T, days int, there []client.Object, followed ...runtime.Object) (*Controller, map[string]map[string]any) {
	t.Helper()
	applied := map[string]map[string]any{}
	management := withoutServer(t)
	management.Client = fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(there...).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(_ context.Context, _ client.WithWatch, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			content, isUnstructured := o.(interface {
				GetName() string
				UnstructuredContent() map[string]any
			})
			if !isUnstructured {
				t.Errorf("applied %T", o)
				return nil
			}
			applied[content.GetName()] = content.UnstructuredContent()
			return nil
		}}).Build()
	return &Controller{Operator: &frame.Operator{Management: management, Client: management.Client,
		Elsewhere: remote.New(t.Context(), apply.Options{}),
		Options: frame.Options{Version: "v1.6.0", Namespace: fleet.NamespaceOperators,
			Clock: clocktesting.NewFakeClock(installedAt.Add(time.Duration(days) * 24 * time.Hour))},
		Secrets: frame.NewSecrets(t.Context(), clientset.NewClientset(followed...).CoreV1(), rightstest.Reviewer{Rules: []rbacv1.PolicyRule{}},
			nil)}}, applied
}
