package registration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// The audit log has what users change, with contents only where these are no secrets, and nothing of what goes on all the time.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit.log")
	own := env.StartHub(t, "", "--audit-log-path", file)
	env.Join(t, own, framework.Managed, "audited")
	c := own.Client(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "audited"},
		StringData: map[string]string{"key": "hidden-content"}}
	framework.Create(t, c, secret)
	framework.Create(t, c, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "audited-role"}})
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{ // whether with contents
		"create secrets audited": false, "get secrets audited": false, "create clusterroles audited-role": true,
		"create managedclusters audited": true, "create certificatesigningrequests": true,
	}
	env.Eventually(t, func(context.Context) error {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		found := map[string]*auditv1.Event{}
		for line := range strings.Lines(string(content)) {
			event := &auditv1.Event{}
			if err := json.Unmarshal([]byte(line), event); err != nil {
				return err // its end is not written yet
			}
			if event.ObjectRef != nil {
				kind := event.Verb + " " + event.ObjectRef.Resource
				found[kind], found[kind+" "+event.ObjectRef.Name] = event, event
			}
		}
		for request, contents := range want {
			switch event := found[request]; {
			case event == nil:
				return fmt.Errorf("no %q", request)
			case (event.RequestObject != nil) != contents:
				return fmt.Errorf("%q with contents: %t, want %t", request, !contents, contents)
			}
		}
		return nil
	})
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, never := range []string{"hidden-content", `"resource":"leases"`, `"resource":"events"`, "system:apiserver", `"verb":"watch"`} {
		if strings.Contains(string(content), never) {
			t.Errorf("the log has %s", never)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the log: %v, %v; want one for its owner alone", info, err)
	}
}

// A policy without a log would look like one that holds.
func TestAuditPolicyWithoutALog(t *testing.T) {
	t.Parallel()
	refusesHub(t, "nothing is written without --audit-log-path", "server", "--controlplane-config-dir", layOutHub(t),
		"--audit-policy-file", "policy.yaml")
}

// layOutHub is the folder of a hub that was never started.
func layOutHub(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := env.NewHub(dir, "none"); err != nil {
		t.Fatal(err)
	}
	return dir
}
