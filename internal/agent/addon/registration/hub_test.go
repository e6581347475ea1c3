package registration

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// certificateOf is valid from start to an hour after.
func certificateOf(t *testing.T, subject pkix.Name) map[string][]byte {
	t.Helper()
	key, encoded, err := hubkubeconfig.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: subject, NotBefore: start, NotAfter: start.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, crypto.Signer(key).Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{fleet.KeyTLSCert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), fleet.KeyTLSKey: encoded}
}

func tokenOf(account string) map[string][]byte {
	part := base64.RawURLEncoding.EncodeToString
	claims := fmt.Sprintf(`{"iat":%d,"exp":%d,"kubernetes.io":{"serviceaccount":{"uid":%q}}}`, start.Unix(), start.Add(time.Hour).Unix(),
		account)
	return map[string][]byte{fleet.KeyToken: []byte(part([]byte(`{"alg":"RS256"}`)) + "." + part([]byte(claims)) + "." + part([]byte("x")))}
}

// RG-60, RG-53: a certificate or token belongs to one hub, whatever address that has, and to the identity that was requested.
func TestCredentialOfAnother(t *testing.T) {
	t.Parallel()
	user := pkix.Name{CommonName: "u", Organization: []string{"g", "h"}}
	ofCluster := pkix.Name{CommonName: "system:open-cluster-management:cluster:c1:addon:hello:agent:a1", Organization: []string{"g"}}
	withUnit := pkix.Name{CommonName: "u", OrganizationalUnit: []string{"signer-1"}}
	kube := &desiredSecret{addOn: "hello", hubID: "this", request: &clientcert.AddOn{SignerName: fleet.SignerKubeAPIServerClient, Subject: user}}
	bound := &desiredSecret{addOn: "hello", hubID: "this",
		request: &clientcert.AddOn{SignerName: fleet.SignerKubeAPIServerClient, Subject: ofCluster}}
	custom := &desiredSecret{addOn: "hello", hubID: "this", request: &clientcert.AddOn{SignerName: "example.com/a", Subject: withUnit}}
	token := &desiredSecret{addOn: "hello", hubID: "this"}
	since := func(notBefore time.Time, w desiredSecret) *desiredSecret {
		w.notBefore = notBefore
		return &w
	}
	const id, hash, requested = fleet.AnnotationHubID, fleet.AnnotationHubHash, fleet.AnnotationRequestedSubject
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	addOn.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionTokenInfrastructureReady, Status: metav1.ConditionTrue,
		Message: fleet.TokenInfrastructureReadyMessage("c1", "hello-agent", "uid1")}}
	for name, test := range map[string]struct {
		desired *desiredSecret
		says    map[string]string
		data    map[string][]byte
		want    string // in the error; empty for none
	}{
		"a certificate of this hub":    {kube, map[string]string{id: "this", hash: "hash"}, certificateOf(t, user), ""},
		"of this hub, which has moved": {kube, map[string]string{id: "this", hash: "before"}, certificateOf(t, user), ""},
		"of the cluster":               {since(start, *bound), map[string]string{id: "this"}, certificateOf(t, ofCluster), ""},
		"of a cluster that had the name before": {since(start.Add(time.Second), *bound), map[string]string{id: "this"},
			certificateOf(t, ofCluster), "when the cluster was created or cut off"},
		"of a user that add-ons on all clusters have, before the cluster": {since(start.Add(time.Second), *kube), map[string]string{id: "this"},
			certificateOf(t, user), ""},
		"of another signer, before the cluster": {since(start.Add(time.Second), *custom), map[string]string{id: "this"},
			certificateOf(t, withUnit), ""},
		"of another hub at the same address": {kube, map[string]string{id: "before", hash: "hash"}, certificateOf(t, user),
			"another hub"},
		"of another hub elsewhere": {kube, map[string]string{id: "before", hash: "before"}, certificateOf(t, user),
			"another hub"},
		"of an agent that did not say":       {kube, map[string]string{hash: "hash"}, certificateOf(t, user), ""},
		"of one that did not say, elsewhere": {kube, map[string]string{hash: "before"}, certificateOf(t, user), "another hub"},
		"of another subject": {kube, map[string]string{id: "this"}, certificateOf(t, withUnit),
			"the client certificate is of"},
		"of another signer": {custom, map[string]string{id: "this", requested: "CN=u,OU=signer-1"},
			certificateOf(t, withUnit), ""},
		"of another signer, which changes subjects": {custom, map[string]string{id: "this", requested: "CN=u,OU=signer-1"},
			certificateOf(t, user), ""},
		"of another signer, asked for as another subject": {custom, map[string]string{id: "this", requested: "CN=u,OU=signer-0"},
			certificateOf(t, withUnit), "asked for as CN=u,OU=signer-0"},
		"of another signer, at another hub": {custom, map[string]string{id: "before", requested: "CN=u,OU=signer-1"},
			certificateOf(t, withUnit), "another hub"},
		"of another signer, and another subject": {custom, map[string]string{id: "this"}, certificateOf(t, pkix.Name{CommonName: "v"}),
			"the client certificate is of"},
		"no certificate":                                   {kube, map[string]string{id: "this"}, nil, "no credential"},
		"a token of this hub":                              {token, map[string]string{id: "this"}, tokenOf("uid1"), ""},
		"a token of another hub":                           {token, map[string]string{id: "before"}, tokenOf("uid1"), "another hub"},
		"a token of an earlier service account of the hub": {token, map[string]string{id: "this"}, tokenOf("uid0"), "uid0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: test.says}, Data: test.data}
			_, err := newController("csr").read(addOn, test.desired, secret)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// RG-64, RG-53: a credential that cannot be used is not reported as valid, and none is before the first one exists.
func TestNotWellMeanwhile(t *testing.T) {
	t.Parallel()
	well := secretState{notBefore: start, notAfter: start.Add(time.Hour)}
	waits := secretState{lack: "it is of another hub"}
	for name, test := range map[string]struct {
		before   metav1.ConditionStatus // empty for none
		outcomes []secretState
		want     metav1.ConditionStatus
		message  string
	}{
		"the first one is on its way": {"", []secretState{waits}, "", ""},
		"the first of two is there":   {"", []secretState{well, waits}, "", ""},
		"both are there":              {"", []secretState{well, well}, metav1.ConditionTrue, "valid from"},
		"it has to be another": {metav1.ConditionTrue, []secretState{waits}, metav1.ConditionFalse,
			"Secret ns/s is of no use, and another credential was asked for: it is of another hub"},
		"one of two has to be another":       {metav1.ConditionTrue, []secretState{well, waits}, metav1.ConditionFalse, "it is of another hub"},
		"it failed, and is on its way again": {metav1.ConditionFalse, []secretState{waits}, metav1.ConditionFalse, "before"},
		"it failed": {metav1.ConditionTrue, []secretState{{err: errors.New("no luck")}, waits}, metav1.ConditionFalse,
			"no luck"},
		"it is there": {metav1.ConditionFalse, []secretState{well}, metav1.ConditionTrue, "valid from"},
	} {
		for _, kind := range []struct {
			name, reason, failed string
			desired              *desiredSecret
		}{
			{"ClusterCertificateRotated", "ClientCertificateUpdated", "ClientCertificateUpdateFailed", &desiredSecret{request: &clientcert.AddOn{}}},
			{"TokenRefreshed", "AddonTokenRefreshed", "TokenCreationFailed", &desiredSecret{}},
		} {
			t.Run(kind.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				kind.desired.secret.Namespace, kind.desired.secret.Name = "ns", "s"
				var conditions []metav1.Condition
				if test.before != "" {
					conditions = []metav1.Condition{{Type: kind.name, Status: test.before, Reason: kind.failed, Message: "before",
						LastTransitionTime: metav1.NewTime(start.Add(-time.Hour))}}
				}
				r := newReport(start)
				for _, o := range test.outcomes {
					r.add(kind.desired, o)
				}
				r.write(&conditions)
				cond := meta.FindStatusCondition(conditions, kind.name)
				if test.want == "" {
					if cond != nil {
						t.Errorf("it says %+v", cond)
					}
					return
				}
				reason := map[metav1.ConditionStatus]string{metav1.ConditionTrue: kind.reason, metav1.ConditionFalse: kind.failed}[test.want]
				if cond == nil || cond.Status != test.want || cond.Reason != reason || !strings.Contains(cond.Message, test.message) {
					t.Fatalf("got %+v, want %s %s %q", cond, test.want, reason, test.message)
				}
				if changed := cond.LastTransitionTime.Time.Equal(start); changed != (test.want != test.before) {
					t.Errorf("%s became %s, at %s", test.before, test.want, cond.LastTransitionTime)
				}
			})
		}
	}
}

// RG-60: agents of two hubs that write the same Secret do not flood these with requests.
func TestContestedSecret(t *testing.T) {
	t.Parallel()
	c := newController("csr")
	w := &desiredSecret{addOn: "hello", cluster: fleet.AddOnCredentialManaged, hubID: "this",
		request: &clientcert.AddOn{Name: "hello", SignerName: "example.com/a"}}
	w.secret.Namespace, w.secret.Name = "ns", "s"
	contested := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s",
		Annotations: map[string]string{fleet.AnnotationHubID: "other"}}}
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(contested).Build()
	c.clusters = map[string]*agentCluster{w.cluster: {name: w.cluster, client: api}}
	c.renewed[w.id()] = start
	got := c.refresh(t.Context(), &addonv1beta1.ManagedClusterAddOn{}, w)
	if !errors.Is(got.err, errContested) || !got.due.Equal(start.Add(clientcert.RetryRenewal)) {
		t.Errorf("got %+v", got)
	}
}
