package reach_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// MS-07: the plugin prints the token of the copy that the hub has made for the account of the cluster, and of no other Secret of that name.
func TestCredentialOfAccount(t *testing.T) {
	const name = "prod-eu-ci" // of the copy for ci of prod-eu, and for eu-ci of prod
	profile := func(name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "multicluster.x-k8s.io/v1alpha1", Kind: "ClusterProfile", Name: name, UID: "profile"}}
	}
	copied := map[string]string{fleet.LabelSyncedFrom: name}
	for what, test := range map[string]struct {
		labels map[string]string
		owners []metav1.OwnerReference
		data   map[string][]byte
		says   []string // nothing if it is the copy
	}{
		"the copy": {copied, profile("prod-eu"), map[string][]byte{"token": []byte("of-ci")}, nil},
		"the copy for another account": {copied, profile("prod"), map[string][]byte{"token": []byte("of-eu-ci")},
			[]string{"Secret team/prod-eu-ci is the copy of the token of ManagedServiceAccount eu-ci of cluster prod,", "ci of cluster prod-eu"}},
		"a Secret of a user": {nil, nil, map[string][]byte{"token": []byte("of-a-user")},
			[]string{"Secret team/prod-eu-ci is not the copy", "owner ClusterProfile prod-eu", fleet.LabelSyncedFrom + "=prod-eu-ci"}},
		"a Secret with the label": {copied, nil, map[string][]byte{"token": []byte("of-a-user")}, []string{"is not the copy"}},
		"a copy without a token":  {copied, profile("prod-eu"), nil, []string{"has no key token"}},
	} {
		t.Run(what, func(t *testing.T) {
			h := clitest.NewHub(t)
			setExecInfo(t, clientauthenticationv1.Cluster{Server: h.URL, CertificateAuthorityData: h.CA(),
				Config: runtime.RawExtension{Raw: []byte(`{"clusterName":"prod-eu"}`)}})
			h.Put(t, "/api/v1/namespaces/team/secrets/"+name, &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: test.labels, OwnerReferences: test.owners}, Data: test.data})
			got := h.Run(t, "", "credentials", "--managed-serviceaccount", "ci", "--namespace", "team")
			if test.says == nil {
				got.Succeeds(t, `"token":"of-ci"`)
				return
			}
			if got.Fails(t, test.says...); got.Out != "" {
				t.Errorf("it prints %s", got.Out)
			}
		})
	}
}
