package fleetsim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
)

const auditEverything = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Metadata"}]}`

// SC-28: what is measured with light agents is what real ones cost the hub: from their registration on to the status of a work, both make
// the same requests, and write as often.
func TestLightAgentMakesTheSameRequests(t *testing.T) {
	t.Parallel()
	policy, audit := filepath.Join(t.TempDir(), "policy.yaml"), filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(policy, []byte(auditEverything), 0o600); err != nil {
		t.Fatal(err)
	}
	hub := env.StartHub(t, "", append(HubFlags(), "--audit-log-path", audit, "--audit-policy-file", policy)...)
	c := hub.Client(t)
	members := mixedFleet(t, hub)
	start(t, members)
	for _, m := range members {
		env.AwaitAvailable(t, c, m.Name)
		work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: m.Name, Name: "work"}}
		work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{
			Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"mine"}}`),
		}}}
		if err := c.Create(t.Context(), work); err != nil {
			t.Fatal(err)
		}
	}
	var all []auditv1.Event
	defer func() {
		for _, event := range all {
			if t.Failed() && event.ResponseStatus.Code >= 300 && strings.HasPrefix(event.User.Username, "system:open-cluster-management:") {
				t.Log(event.User.Username, event.Verb, event.RequestURI, event.ResponseStatus.Message)
			}
		}
	}()
	env.Eventually(t, func(context.Context) (err error) {
		if all, err = requests(audit); err != nil {
			return err
		}
		seen, light := made(all, members[0].Name), made(all, members[1].Name)
		if difference := cmp.Diff(seen, light); difference != "" || !slices.Contains(seen, "update manifestworks/status") {
			return fmt.Errorf("the real agent and the light one make other requests: %s", difference)
		}
		return nil
	})
}

// mixedFleet has a real agent and a light one.
func mixedFleet(t *testing.T, hub *env.Server) Fleet {
	t.Helper()
	o := optionsFor(t, hub)
	var mixed Fleet
	for i, light := range []bool{false, true} {
		o.Dir, o.Size, o.Light = t.TempDir(), i+1, light
		all, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		mixed = append(mixed, all[i])
	}
	return mixed
}

// requests are those of the audit log that are written whole.
func requests(audit string) (all []auditv1.Event, err error) {
	content, err := os.ReadFile(audit)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(content[:bytes.LastIndexByte(content, '\n')+1]))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		event := auditv1.Event{}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return nil, err
		}
		all = append(all, event)
	}
	return all, lines.Err()
}

// made are the requests about objects of the agent of a cluster that the hub granted: those that were refused are made again as often as
// others are faster. Reads and those about the lease count once: how often there are watches and heartbeats depends on the time.
func made(all []auditv1.Event, cluster string) []string {
	found := map[string]string{}
	for _, event := range all {
		agent := strings.HasPrefix(event.User.Username, "system:open-cluster-management:"+cluster+":")
		if !agent && !strings.HasPrefix(event.User.Username, "system:bootstrap:") || event.ObjectRef == nil || event.ResponseStatus.Code >= 300 {
			continue
		}
		if !agent && !strings.Contains(event.RequestURI+event.ObjectRef.Name, cluster) {
			continue
		}
		kind := strings.TrimSuffix(event.Verb+" "+event.ObjectRef.Resource+"/"+event.ObjectRef.Subresource, "/")
		request := string(event.AuditID)
		if event.ObjectRef.Resource == "leases" || slices.Contains([]string{"get", "list", "watch"}, event.Verb) {
			request = kind
		}
		found[request] = kind
	}
	return slices.Sorted(maps.Values(found))
}

// An agent that writes twice, where the other writes once, is another agent to the hub. How often it reads depends on how events fall
// together.
func TestRequestsOfAnAgentAreCounted(t *testing.T) {
	t.Parallel()
	const agent, newcomer = "system:open-cluster-management:sim-0:agent", "system:bootstrap:" + tokenID
	request := func(id types.UID, user, verb, resource string, code int32) auditv1.Event {
		return auditv1.Event{AuditID: id, User: authenticationv1.UserInfo{Username: user}, Verb: verb,
			ObjectRef: &auditv1.ObjectReference{Resource: resource, Name: "sim-0"}, ResponseStatus: &metav1.Status{Code: code}}
	}
	for what, test := range map[string]struct {
		all  []auditv1.Event
		want []string
	}{
		"twice": {
			all:  []auditv1.Event{request("1", agent, "patch", "manifestworks", 200), request("2", agent, "patch", "manifestworks", 200)},
			want: []string{"patch manifestworks", "patch manifestworks"},
		},
		"one that begins and ends": {
			all:  []auditv1.Event{request("1", agent, "patch", "manifestworks", 200), request("1", agent, "patch", "manifestworks", 200)},
			want: []string{"patch manifestworks"},
		},
		"reads": {
			all: []auditv1.Event{
				request("1", agent, "watch", "manifestworks", 200), request("2", agent, "watch", "manifestworks", 200),
				request("3", agent, "list", "manifestworks", 200), request("4", agent, "list", "manifestworks", 200),
				request("5", agent, "get", "manifestworks", 200), request("6", agent, "get", "manifestworks", 200),
			},
			want: []string{"get manifestworks", "list manifestworks", "watch manifestworks"},
		},
		"refused, and granted": {
			all:  []auditv1.Event{request("1", agent, "patch", "manifestworks", 409), request("2", agent, "patch", "manifestworks", 200)},
			want: []string{"patch manifestworks"},
		},
		"heartbeats": {
			all:  []auditv1.Event{request("1", agent, "update", "leases", 200), request("2", agent, "update", "leases", 200)},
			want: []string{"update leases"},
		},
		"with a bootstrap token": {
			all:  []auditv1.Event{request("1", newcomer, "create", "managedclusters", 201)},
			want: []string{"create managedclusters"},
		},
		"of another agent": {
			all: []auditv1.Event{request("1", "system:open-cluster-management:sim-1:agent", "patch", "manifestworks", 200)},
		},
	} {
		if got := made(test.all, "sim-0"); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", what, got, test.want)
		}
	}
}
