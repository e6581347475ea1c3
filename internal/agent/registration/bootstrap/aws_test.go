package bootstrap

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/registration/ekstoken"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/machinery/eks"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// tokenOfAWS is what the command aws of the tests prints.
const tokenOfAWS = "k8s-aws-v1.of-the-test"

// TestMain makes the program of the tests the command aws, too.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "aws" {
		beAWS()
	}
	dir, err := os.MkdirTemp("", "aws")
	if err == nil {
		var own string
		if own, err = os.Executable(); err == nil {
			err = os.Symlink(own, filepath.Join(dir, "aws"))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func beAWS() {
	switch args := strings.Join(os.Args[1:], " "); args {
	case "--version":
	case "eks get-token --cluster-name hub1 --region us-west-2 --role-arn " + awsPair.HubRoleARN() + " --output json":
		fmt.Printf(`{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","status":{"token":%q}}`, tokenOfAWS)
	default:
		fmt.Fprintln(os.Stderr, "not expected:", args)
		os.Exit(1)
	}
	os.Exit(0)
}

var awsPair = eks.Pair{Hub: eks.Cluster{Region: "us-west-2", Account: "123456789012", Name: "hub1"},
	Managed: eks.Cluster{Region: "us-west-2", Account: "210987654321", Name: "c1"}}

// awsHub is a hub that accepts a cluster at once, after it has deleted some, and knows the token of AWS at the second time.
type awsHub struct {
	t         *testing.T
	lock      sync.Mutex
	cluster   *clusterv1.ManagedCluster
	deletions []deletion
	created   int
	byAWS     int
	others    []string
}

// deletion is how a hub deletes a cluster whose agent waits.
type deletion string

const (
	duringWatch deletion = "DELETED"
	beforeWatch deletion = "no event"
)

func (h *awsHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.lock.Lock()
	defer h.lock.Unlock()
	w.Header().Set("Content-Type", "application/json")
	const path = "/apis/cluster.open-cluster-management.io/v1/managedclusters"
	byAWS := r.Header.Get("Authorization") == "Bearer "+tokenOfAWS
	if byAWS {
		h.byAWS++
	}
	switch {
	case byAWS && h.byAWS < 2:
		h.answer(w, http.StatusUnauthorized, &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnauthorized,
			Reason: metav1.StatusReasonUnauthorized})
	case r.Method == http.MethodPost && r.URL.Path == path && h.cluster != nil:
		h.answer(w, http.StatusConflict, &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusConflict,
			Reason: metav1.StatusReasonAlreadyExists})
	case r.Method == http.MethodPost && r.URL.Path == path:
		h.created++
		h.cluster = &clusterv1.ManagedCluster{}
		if err := json.NewDecoder(r.Body).Decode(h.cluster); err != nil {
			h.t.Error(err)
		}
		h.answer(w, http.StatusCreated, h.cluster)
	case r.Method == http.MethodGet && r.URL.Path == path+"/cluster1" && h.cluster == nil:
		h.answer(w, http.StatusNotFound, &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound,
			Reason: metav1.StatusReasonNotFound})
	case r.Method == http.MethodGet && r.URL.Path == path+"/cluster1":
		h.answer(w, http.StatusOK, h.cluster)
	case r.Method == http.MethodGet && r.URL.Path == path && r.URL.Query().Get("watch") != "" && len(h.deletions) > 0:
		h.delete(w)
	case r.Method == http.MethodGet && r.URL.Path == path && r.URL.Query().Get("watch") != "":
		accepted := h.cluster.DeepCopy()
		accepted.TypeMeta = metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "ManagedCluster"}
		meta.SetStatusCondition(&accepted.Status.Conditions,
			metav1.Condition{Type: fleet.ConditionHubAccepted, Status: metav1.ConditionTrue, Reason: "R"})
		h.answer(w, http.StatusOK, map[string]any{"type": "ADDED", "object": accepted})
	default:
		h.others = append(h.others, r.Method+" "+r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
	}
}

// delete deletes the cluster, and answers a watch accordingly, which ends then.
func (h *awsHub) delete(w http.ResponseWriter) {
	deleted := h.cluster
	deleted.TypeMeta = metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "ManagedCluster"}
	if h.deletions[0] == duringWatch {
		h.answer(w, http.StatusOK, map[string]any{"type": "DELETED", "object": deleted})
	}
	h.cluster, h.deletions = nil, h.deletions[1:]
}

func (h *awsHub) answer(w http.ResponseWriter, status int, body any) {
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		h.t.Error(err)
	}
}

func awsAgent(t *testing.T, hub *awsHub) *Bootstrap {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*serve(t, hub.ServeHTTP), kubeconfig); err != nil {
		t.Fatal(err)
	}
	return &Bootstrap{
		Kubeconfigs: []string{kubeconfig}, Identity: identity.Identity{Cluster: "cluster1", Agent: "agent1"}, AWS: &awsPair,
		Annotations: map[string]string{fleet.AnnotationAgentPrefix + "a": "b", fleet.AnnotationManagedClusterARN: "x"},
		Store:       &hubkubeconfig.Store{Dir: t.TempDir()}, Record: func(string, string, string, string, ...any) {}, Clock: clock.RealClock{},
	}
}

// RG-52: an agent that registers by AWS IAM says on its ManagedCluster which cluster of AWS it is, requests no certificate, and waits until
// the hub knows the token of its role. After a restart it goes on with what it has.
func TestRegisterByAWS(t *testing.T) {
	t.Parallel()
	hub := &awsHub{t: t}
	b := awsAgent(t, hub)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := awsPair.Annotations()
	want[fleet.AnnotationAgentPrefix+"a"] = "b"
	for key, value := range want {
		if hub.cluster.Annotations[key] != value {
			t.Errorf("the ManagedCluster has %v, want %s=%s", hub.cluster.Annotations, key, value)
		}
	}
	if hub.byAWS < 2 || len(hub.others) > 0 {
		t.Errorf("%d requests with the token of AWS; others: %q", hub.byAWS, hub.others)
	}
	credential, err := b.Store.Load()
	if err != nil || credential == nil {
		t.Fatalf("credential %v, %v", credential, err)
	}
	command := credential.Command()
	if command == nil || command.Command != "aws" || len(credential.Certificate) > 0 || credential.Expired(b.Clock.Now()) != nil {
		t.Errorf("the credential has the command %+v", command)
	}
	if holder, err := credential.Holder(); err != nil || holder != b.Identity {
		t.Errorf("holder %v, %v", holder, err)
	}
	if info, err := os.Stat(b.Store.HubFile()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig: %v, %v", info, err)
	}
	before := hub.byAWS
	if err := b.Ensure(t.Context()); err != nil || hub.byAWS != before {
		t.Errorf("after a restart: %v, %d more requests", err, hub.byAWS-before)
	}
	for name, test := range map[string]struct {
		change func(*Bootstrap)
		kept   bool
	}{
		"by certificate":       {change: func(b *Bootstrap) { b.AWS = nil }},
		"with other hub":       {change: func(b *Bootstrap) { other := awsPair; other.Hub.Name = "hub2"; b.AWS = &other }},
		"in other region":      {change: func(b *Bootstrap) { other := awsPair; other.Hub.Region = "eu-central-1"; b.AWS = &other }},
		"with other role":      {change: func(b *Bootstrap) { other := awsPair; other.Managed.Name = "c2"; b.AWS = &other }},
		"as other agent":       {change: func(b *Bootstrap) { b.Identity.Agent = "agent2" }},
		"with another program": {change: func(b *Bootstrap) { madeByAgent(t, b) }, kept: true},
		"as it is, again":      {change: func(*Bootstrap) {}, kept: true},
	} {
		next := &Bootstrap{Identity: b.Identity, AWS: b.AWS, Store: b.Store, Record: b.Record, Clock: b.Clock}
		test.change(next)
		got, err := next.credential(t.Context())
		if err != nil || (got != nil) != test.kept {
			t.Errorf("%s: credential %v, %v", name, got, err)
		}
		stored, err := b.Store.Load()
		if err != nil || stored == nil {
			t.Fatalf("%s: stored %v, %v", name, stored, err)
		}
		if !stored.RunsAs(b.command()) || got != nil && !got.RunsAs(b.command()) {
			t.Errorf("%s: the command in the store is %+v", name, stored.Command())
		}
		if holder, err := stored.Holder(); err != nil || holder != b.Identity {
			t.Errorf("%s: holder %v, %v", name, holder, err)
		}
	}
}

// madeByAgent has the agent itself make the tokens of the credential in the store, as where there is no AWS command line.
func madeByAgent(t *testing.T, b *Bootstrap) {
	t.Helper()
	command := b.command()
	command.Command, command.Args = "/capstan-agent", append([]string{ekstoken.Command}, command.Args[2:len(command.Args)-2]...)
	err := b.Store.Update(t.Context(), func(now hubkubeconfig.Credential) (*hubkubeconfig.Credential, error) { return now.RunningAs(command) })
	if err != nil {
		t.Fatal(err)
	}
}

// RG-52: an agent whose ManagedCluster is deleted while it waits creates it again: by AWS, nothing else says that it asks.
func TestDeletedWhileItWaits(t *testing.T) {
	t.Parallel()
	hub := &awsHub{t: t, deletions: []deletion{duringWatch, beforeWatch}}
	b := awsAgent(t, hub)
	if err := b.attempt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if hub.created != 3 || len(hub.deletions) > 0 {
		t.Errorf("%d times created, not deleted yet: %q", hub.created, hub.deletions)
	}
	for key, value := range awsPair.Annotations() {
		if hub.cluster.Annotations[key] != value {
			t.Errorf("the ManagedCluster has %v, want %s=%s", hub.cluster.Annotations, key, value)
		}
	}
}

// RG-52: an agent does not take a ManagedCluster for its own that is that of another cluster of AWS. It says what to do, and registers once
// that is done.
func TestManagedClusterOfOtherARN(t *testing.T) {
	t.Parallel()
	hub := &awsHub{t: t, cluster: &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}}}
	b := awsAgent(t, hub)
	err := b.attempt(t.Context())
	if err == nil || !strings.Contains(err.Error(), "kubectl annotate --overwrite managedcluster cluster1") ||
		!strings.Contains(err.Error(), awsPair.Managed.ARN()) || !strings.Contains(err.Error(), awsPair.Suffix()) {
		t.Fatalf("error %v", err)
	}
	if hub.byAWS > 0 || slices.Contains(hub.others, "POST /apis/certificates.k8s.io/v1/certificatesigningrequests") {
		t.Errorf("%d requests with the token of AWS; others: %q", hub.byAWS, hub.others)
	}
	_, advised, _ := strings.Cut(err.Error(), "kubectl annotate --overwrite managedcluster cluster1 ")
	advised, _, _ = strings.Cut(advised, "»")
	for _, annotation := range strings.Fields(advised) {
		key, value, _ := strings.Cut(annotation, "=")
		metav1.SetMetaDataAnnotation(&hub.cluster.ObjectMeta, key, value)
	}
	if err := b.Ensure(t.Context()); err != nil || hub.byAWS == 0 {
		t.Errorf("after the advice: %v, %d requests with the token of AWS", err, hub.byAWS)
	}
}
