package joinrequests_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/joinrequests"
)

const (
	requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	leasesPath   = "/apis/coordination.k8s.io/v1/namespaces/c1/leases"
)

func putLease(t *testing.T, fake *fakehub.Hub, renewed string) {
	t.Helper()
	fake.Put(t, leasesPath+"/managed-cluster-lease", &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{"name": "managed-cluster-lease", "namespace": "c1"}, "spec": map[string]any{"renewTime": renewed},
	}})
}

// CA-17: an agent has registered when it has done something itself; where nothing of it can be seen, that is no success, and no failure.
func TestAwaitRegistered(t *testing.T) {
	t.Parallel()
	forbidden := fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "no")
	unauthorized := fakehub.Refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "no")
	for name, test := range map[string]struct {
		credential       bool
		requests, leases http.HandlerFunc
		submits, renews  bool
		before           bool   // it has an approved request of an earlier run
		says             string // empty for success
		invisible        bool
	}{
		"nothing":                            {says: "canceled"},
		"nothing, with a credential":         {credential: true, says: "canceled"},
		"it submits one":                     {submits: true},
		"it submits one, with a credential":  {credential: true, submits: true},
		"it submitted one before":            {before: true, says: "canceled"},
		"it submits another":                 {before: true, submits: true},
		"it renews":                          {credential: true, renews: true},
		"it renews, requests hidden":         {credential: true, renews: true, requests: forbidden},
		"requests hidden":                    {requests: forbidden, says: "does not let you see certificate requests", invisible: true},
		"no renewal, requests hidden":        {credential: true, requests: forbidden, says: "canceled"},
		"all hidden":                         {credential: true, requests: forbidden, leases: unauthorized, says: "requests", invisible: true},
		"the cluster is not accepted":        {credential: true, leases: forbidden, says: "before the cluster is accepted", invisible: true},
		"credential refused, it submits one": {credential: true, leases: unauthorized, submits: true},
		"credential refused":                 {credential: true, leases: unauthorized, says: "canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := fakehub.New(t)
			putLease(t, fake, "2026-11-23T12:00:00.000000Z")
			if test.requests != nil {
				fake.Handle("GET "+requestsPath, test.requests)
			}
			if test.leases != nil {
				fake.Handle("GET "+leasesPath, test.leases)
			}
			compared := make(chan struct{}, 1)
			agent := joinrequests.Agent{Cluster: "c1", User: func() string {
				select {
				case compared <- struct{}{}:
				default:
				}
				return "system:open-cluster-management:c1:a1"
			}}
			if test.credential {
				agent.Credential = fake.Client(t)
			}
			if test.before {
				request := fakehub.JoinRequest(t, "before", "c1", "a1")
				request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
				fake.Put(t, requestsPath+"/before", request)
				agent.Earlier = map[string]bool{"before": true}
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			hub, done := fake.Client(t), make(chan error, 1)
			go func() { done <- agent.AwaitRegistered(ctx, hub) }()
			if test.requests == nil && !test.invisible {
				awaitWatch(t, fake, requestsPath)
			}
			if test.credential && test.leases == nil && !test.invisible {
				awaitWatch(t, fake, leasesPath)
			}
			fake.Put(t, requestsPath+"/other", fakehub.JoinRequest(t, "other", "c1", "a2"))
			if test.submits {
				fake.Put(t, requestsPath+"/own", fakehub.JoinRequest(t, "own", "c1", "a1"))
			}
			if test.renews {
				putLease(t, fake, "2026-11-23T11:00:00.000000Z") // of a clock that is behind
			}
			if test.says == "canceled" {
				if test.requests == nil { // the request of the other agent has to be seen before
					select {
					case <-compared:
					case err := <-done:
						t.Fatalf("it ended before: %v", err)
					}
				}
				cancel()
			}
			err := <-done
			var invisible *joinrequests.InvisibleError
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) ||
				errors.As(err, &invisible) != test.invisible {
				t.Errorf("got %v", err)
			}
		})
	}
}

// CA-18: a request is handled once while it stays as it is, whatever happens to others of its cluster.
func TestWatchHandlesOnce(t *testing.T) {
	t.Parallel()
	fake := fakehub.New(t)
	put := func(name string) { fake.Put(t, requestsPath+"/"+name, fakehub.JoinRequest(t, name, "c1", "a1")) }
	put("first")
	var handled []string
	err := joinrequests.Watch(t.Context(), fake.Client(t), "c1", time.Time{}, func(request joinrequests.Request) bool {
		handled = append(handled, request.Name)
		switch request.Name {
		case "first":
			put("second")
		case "second":
			put("third")
		}
		return request.Name == "third"
	})
	if want := []string{"first", "second", "third"}; err != nil || !slices.Equal(handled, want) {
		t.Errorf("handled %q, want %q: %v", handled, want, err)
	}
}

func awaitWatch(t *testing.T, fake *fakehub.Hub, path string) {
	t.Helper()
	if err := fake.AwaitWatch(t.Context(), path); err != nil {
		t.Fatal(err)
	}
}
