package fleetsim

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/capstan-io/capstan/test/env"
)

const auditContents = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Request"}]}`

// ofAJoin are the requests to the hub that the join of one cluster takes, and who makes them. One more is one more for each cluster of a
// fleet.
var ofAJoin = []string{
	"agent: create events",
	"agent: get leases",
	"agent: list managedclusteraddons",
	"agent: list managedclusters",
	"agent: list manifestworks",
	"agent: patch managedclusters/status",
	"agent: update leases",
	"agent: watch managedclusteraddons",
	"agent: watch managedclusters",
	"agent: watch manifestworks",
	"hub: create clusterrolebindings",
	"hub: create clusterroles",
	"hub: create configmaps",
	"hub: create events",
	"hub: create events",
	"hub: create events",
	"hub: create leases",
	"hub: create namespaces",
	"hub: create rolebindings",
	"hub: create rolebindings",
	"hub: create serviceaccounts",
	"hub: get managedclusters",
	"hub: patch managedclusters",
	"hub: patch managedclusters",
	"hub: patch managedclusters/status",
	"hub: update certificatesigningrequests/approval",
	"hub: update certificatesigningrequests/status",
	"newcomer: create certificatesigningrequests",
	"newcomer: create managedclusters",
	"newcomer: watch certificatesigningrequests",
	"newcomer: watch managedclusters",
}

// SC-28: a join takes these requests and no others. Not among them are those that the hub makes for several clusters at once, such as
// counting the members of sets.
func TestRequestsOfAJoin(t *testing.T) {
	t.Parallel()
	policy, audit := filepath.Join(t.TempDir(), "policy.yaml"), filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(policy, []byte(auditContents), 0o600); err != nil {
		t.Fatal(err)
	}
	hub := env.StartHub(t, "", append(HubFlags(), "--audit-log-path", audit, "--audit-policy-file", policy)...)
	o := optionsFor(t, hub)
	o.Size = 3
	members, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	// One after the other: the first has the hub make what all clusters share, and what the second takes is complete when there is a third.
	for i := range members {
		start(t, members[i:i+1])
		env.AwaitAvailable(t, hub.Client(t), members[i].Name)
	}
	env.Eventually(t, func(context.Context) error {
		all, err := requests(audit)
		if err != nil {
			return err
		}
		if difference := cmp.Diff(ofAJoin, about(all, members[1].Name)); difference != "" {
			return fmt.Errorf("a join takes other requests (-want +got):\n%s", difference)
		}
		return nil
	})
}

// about are the requests that name a cluster, in the order of who makes them. Those that were refused are left out: how often others are
// faster, so that one is made again, depends on the machine.
func about(all []auditv1.Event, cluster string) []string {
	found := map[string]string{}
	for _, event := range all {
		of := event.ObjectRef
		if of == nil || event.ResponseStatus.Code >= 300 && event.ResponseStatus.Code != 404 {
			continue
		}
		names := event.RequestURI + event.User.Username + of.Namespace + of.Name
		if event.RequestObject != nil {
			names += string(event.RequestObject.Raw)
		}
		if !strings.Contains(names, cluster) {
			continue
		}
		var who string
		switch user := event.User.Username; {
		case user == "system:apiserver":
			who = "hub"
		case strings.HasPrefix(user, "system:bootstrap:"):
			who = "newcomer"
		case strings.HasPrefix(user, "system:open-cluster-management:"):
			who = "agent"
		default:
			continue // the test
		}
		found[string(event.AuditID)] = who + ": " + strings.TrimSuffix(event.Verb+" "+of.Resource+"/"+of.Subresource, "/")
	}
	return slices.Sorted(maps.Values(found))
}
