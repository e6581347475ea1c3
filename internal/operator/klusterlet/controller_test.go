package klusterlet

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/upgrade"
)

// KL-01, KL-04: two Klusterlets do not share a namespace on the managed cluster, wherever the other one is.
func TestOwnNamespace(t *testing.T) {
	t.Parallel()
	k := klusterletWith(operatorv1.InstallModeHosted)
	l := layoutOf(k)
	cluster := func(objects ...client.Object) client.Client {
		return fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(objects...).Build()
	}
	namespaceOf := func(name string) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.accounts, Labels: map[string]string{fleet.LabelKlusterlet: name}}}
	}
	other := func() client.Object { return &operatorv1.Klusterlet{ObjectMeta: metav1.ObjectMeta{Name: "other"}} }
	const refused = "the namespace open-cluster-management-agent on the managed cluster is that of Klusterlet other"
	for name, test := range map[string]struct {
		management, managed client.Client
		want                string
	}{
		"new":                {cluster(), cluster(), ""},
		"its own":            {cluster(), cluster(namespaceOf(k.Name)), ""},
		"of one gone":        {cluster(), cluster(namespaceOf("other")), ""},
		"of one hosted here": {cluster(other()), cluster(namespaceOf("other")), refused},
		"of one there":       {cluster(), cluster(namespaceOf("other"), other()), refused},
	} {
		err := (&Controller{Operator: &frame.Operator{Client: test.management}}).checkNamespaceOwner(t.Context(), l, test.managed)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// CA-41: an operator that may not take over what is installed says so in the same way as that of ClusterManagers.
func TestVersionRefused(t *testing.T) {
	t.Parallel()
	k := klusterletWith(operatorv1.InstallModeDefault)
	k.Annotations = map[string]string{upgrade.AnnotationVersion: "v1.4.0"}
	for version, want := range map[string]string{"v1.6.0": frame.ReasonVersionRefused, "v1.5.0": ""} {
		c := &Controller{Operator: &frame.Operator{Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(k.DeepCopy()).Build(),
			Options: frame.Options{Namespace: "operators", Version: version}}}
		if reason, err := c.refusal(t.Context(), layoutOf(k)); (err == nil) != (want == "") || err != nil && reason != want {
			t.Errorf("%s: %s, %v", version, reason, err)
		}
	}
}
