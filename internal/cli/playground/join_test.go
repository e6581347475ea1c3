package playground

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	certutil "k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// CA-17: an agent that was started is waited for, whatever the hub has of its cluster from before, or of other agents.
func TestAwaitOwnAgent(t *testing.T) {
	t.Parallel()
	const leases = "/apis/coordination.k8s.io/v1/namespaces/cluster1/leases"
	const requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	approved := []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
	for name, test := range map[string]struct {
		joined                 bool   // in an earlier run
		before, requests       string // agents that have requested to join before, and that do now
		renews, ends, succeeds bool
	}{
		"the cluster is from before":           {},
		"another agent asks":                   {requests: "a2"},
		"it has asked before":                  {before: "a1"},
		"it asks":                              {requests: "a1", succeeds: true},
		"it asks again":                        {before: "a1", requests: "a1", succeeds: true},
		"it has joined before":                 {joined: true},
		"it has joined before, and works":      {joined: true, renews: true, succeeds: true},
		"it has joined before, and asks again": {joined: true, requests: "a1", succeeds: true},
		"another one works":                    {renews: true},
		"it ends":                              {ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, fake, _ := newUp(t)
			fake.Put(t, clusterPath, clusterWith(nil))
			request := func(name, agent string) {
				csr := fakehub.JoinRequest(t, name, "cluster1", agent)
				csr.Status.Conditions = approved
				fake.Put(t, requests+"/"+name, csr)
			}
			renew := func(at string) {
				fake.Put(t, leases+"/managed-cluster-lease", &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
					"metadata": map[string]any{"name": "managed-cluster-lease"}, "spec": map[string]any{"renewTime": at}}})
			}
			renew("2026-11-23T12:00:00.000000Z")
			files := map[string][]byte{fleet.KeyAgentName: []byte("a1\n")}
			if test.joined {
				var err error
				if files[fleet.KeyTLSCert], files[fleet.KeyTLSKey], err = certutil.GenerateSelfSignedCertKey("agent", nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			for key, content := range files {
				if err := WriteSecretFile(filepath.Join(u.agent.dir(), key), content); err != nil {
					t.Fatal(err)
				}
			}
			r := Registration{Agent: u.agent, Invitation: u.invitation, Trust: u.trust, Hub: u.hub, Earlier: map[string]bool{"before": true},
				Process: &Process{Name: "any", PID: os.Getpid(), exited: make(chan struct{})}}
			if test.before != "" {
				request("before", test.before)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- r.Await(ctx) }()
			for collection, watched := range map[string]bool{requests: true, leases: test.joined} {
				if watched && fake.AwaitWatch(t.Context(), collection) != nil {
					t.Fatal("the test has ended")
				}
			}
			if test.requests != "" {
				request("now", test.requests)
			}
			if test.renews {
				renew("2026-11-23T11:00:00.000000Z") // of a clock that is behind
			}
			if test.ends {
				close(r.Process.exited)
			} else if !test.succeeds {
				cancel()
			}
			err := <-done
			if (err == nil) != test.succeeds || test.ends && !strings.Contains(err.Error(), "does not run") {
				t.Errorf("it is waited for with %v", err)
			}
		})
	}
}
