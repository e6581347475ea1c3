package registration

import (
	"regexp"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// RG-07: an agent whose request is denied says how it gets to make another one, and joins when that is done.
func TestAdviceForADeniedRequest(t *testing.T) {
	t.Parallel()
	const name = "denied-by-mistake"
	c, agent := framework.Hub.Client(t), env.NewAgent(t, framework.Hub, framework.Managed, name, "")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitRequests(t, name, 1)
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: framework.Requests(t, name)[0]}, csr); err != nil {
		t.Fatal(err)
	}
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied,
		Status: corev1.ConditionTrue, Reason: "Test", Message: "Denied by a test"}}
	if err := c.SubResource("approval").Update(t.Context(), csr); err != nil {
		t.Fatal(err)
	}
	advised := adviceIn(t, agent.Process, "kubectl delete csr ", `([a-z0-9-]+)`)
	if advised != csr.Name {
		t.Errorf("it names the request %s, and %s is denied", advised, csr.Name)
	}
	if err := c.Delete(t.Context(), &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: advised}}); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, c, name)
	env.AwaitAvailable(t, c, name)
}

// adviceIn waits until a program advises a command, and returns what follows it and matches.
func adviceIn(t *testing.T, p *env.Process, command, argument string) string {
	t.Helper()
	framework.AwaitLog(t, p, command, 1)
	found := regexp.MustCompile(regexp.QuoteMeta(command) + argument).FindStringSubmatch(p.Log())
	if found == nil {
		t.Fatalf("%s… has no argument that is %s in:\n%s", command, argument, p.Log())
	}
	return found[1]
}
