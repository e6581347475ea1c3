package install_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

const appliedPath = "/apis/work.open-cluster-management.io/v1/appliedmanifestworks"

// joined is a home with an agent that runs for the cluster far, whose API server is a fake one.
type joined struct {
	playground.Home
	cluster clitest.Hub
	agent   *playground.Process
}

func newJoined(t *testing.T) joined {
	t.Helper()
	j := joined{Home: playground.Home{Dir: t.TempDir()}, cluster: clitest.NewHub(t)}
	t.Setenv(playground.EnvHome, j.Dir)
	unlock, err := j.Lock() // makes the folders
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	state := playground.State{
		Clusters: []playground.ClusterState{{Name: "cluster1", Port: 1}},
		Joined:   []playground.Member{{Name: "far", Kubeconfig: j.cluster.File}, {Name: "other", Kubeconfig: "/other"}},
	}
	if err := j.Save(state); err != nil {
		t.Fatal(err)
	}
	if err := playground.WriteSecretFile(filepath.Join(j.ClusterDir("far"), "agent", "agent-name"), []byte("a1")); err != nil {
		t.Fatal(err)
	}
	if j.agent, _, err = j.Processes().Start(playground.Program{Name: "far-agent", Path: "/bin/sh", Args: []string{"-c", "exec sleep 1000"}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = j.agent.Stop(context.Background(), 0) })
	return j
}

func (j joined) putApplied(t *testing.T, work, agent string) {
	t.Helper()
	j.cluster.Put(t, appliedPath+"/"+work, &workv1.AppliedManifestWork{
		TypeMeta:   metav1.TypeMeta{APIVersion: workv1.GroupVersion.String(), Kind: "AppliedManifestWork"},
		ObjectMeta: metav1.ObjectMeta{Name: work},
		Spec:       workv1.AppliedManifestWorkSpec{AgentID: agent, ManifestWorkName: work},
		Status:     workv1.AppliedManifestWorkStatus{AppliedResources: make([]workv1.AppliedManifestResourceMeta, 2)},
	})
}

// isThere fails the test unless the agent runs and its files are there, or neither.
func (j joined) isThere(t *testing.T, want bool) {
	t.Helper()
	_, err := os.Stat(j.ClusterDir("far"))
	_, logErr := os.Stat(j.agent.Log)
	names, namesErr := j.JoinedNames()
	if namesErr != nil {
		t.Fatal(namesErr)
	}
	known := strings.Contains(strings.Join(names, " "), "far")
	if !want { // the command sees a process end a moment before the one that has started it
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = j.agent.WaitExit(ctx)
	}
	if j.agent.Running() != want || (err == nil) != want || (logErr == nil) != want || known != want {
		t.Errorf("running %t, files %v, log %v, known %v; want %t", j.agent.Running(), err, logErr, names, want)
	}
}

// CA-19: the agent goes, with its key; what other agents do on the same cluster does not matter.
func TestUnjoin(t *testing.T) {
	j := newJoined(t)
	j.putApplied(t, "of-another-hub", "a2")
	clitest.Run(t.Context(), "", "unjoin", "--local", "--cluster-name", "far", "--dry-run").Succeeds(t, "would stop the agent of cluster far",
		j.ClusterDir("far"))
	j.isThere(t, true)
	got := clitest.Run(t.Context(), "", "unjoin", "--local", "--cluster-name", "far")
	got.Succeeds(t, "Applied resources have been deleted during the far joined stage. The status of mcl far will be unknown in the hub cluster.")
	if !strings.Contains(got.ErrOut, "kubectl delete managedcluster far") || !strings.Contains(got.ErrOut, "What stays in the cluster") {
		t.Errorf("nothing says what is left to do: %s", got.ErrOut)
	}
	j.isThere(t, false)
	clitest.Run(t.Context(), "", "unjoin", "--local", "--cluster-name", "far").Fails(t, "cluster far was not joined", "Those that were: other")
	clitest.Run(t.Context(), "", "unjoin", "--local", "--cluster-name", "cluster1").Fails(t, "belongs to the playground", "capstan down --purge")
	if got := clitest.Run(t.Context(), "", "__complete", "unjoin", "--cluster-name="); !strings.HasPrefix(got.Out, "other\n:") {
		t.Errorf("completes to %q", got.Out)
	}
}

// CA-19: it refuses as long as only the agent can take off what it applied, and says how that is done.
func TestUnjoinRefuses(t *testing.T) {
	j := newJoined(t)
	j.putApplied(t, "web", "a1")
	clitest.Run(t.Context(), "", "unjoin", "--local", "--cluster-name", "far").Fails(t, "work web (objects: 2)",
		"kubectl delete managedcluster far", "--wait", "--force")
	j.isThere(t, true)
	waits := func(ctx context.Context) { _ = j.cluster.AwaitWatch(ctx, appliedPath) }
	clitest.TimesOutAfter(t, waits, "", "unjoin", "--local", "--cluster-name", "far", "--wait", "--timeout", "1").
		Fails(t, "not done after 1s", "the agent goes on", "capstan get works --cluster far")
	j.isThere(t, true)
	clitest.Run(t.Context(), "", "unjoin", "--local", "--cluster-name", "far", "--wait", "--force").Fails(t, "wait", "force")
	if _, err := j.agent.Stop(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	clitest.Run(t.Context(), "", "unjoin", "--local", "--cluster-name", "far", "--wait").Fails(t, "work web", "The agent does not run", "capstan join --local")
}

// CA-19, O18: --wait goes on when the works are gone, --force does not wait.
func TestUnjoinWaits(t *testing.T) {
	j := newJoined(t)
	j.putApplied(t, "web", "a1")
	done := make(chan clitest.Result)
	go func() { done <- clitest.Run(t.Context(), "", "unjoin", "--local", "--cluster-name", "far", "--wait") }()
	j.cluster.WaitForWatch(t, appliedPath)
	j.cluster.Remove(t, appliedPath+"/web")
	(<-done).Succeeds(t, "Applied resources have been deleted")
	j.isThere(t, false)
}

// CA-19: a run that was killed after any of its steps is run again, and removes what is left.
func TestInterruptedLocalUnjoin(t *testing.T) {
	steps := []func(j joined) error{
		func(j joined) error { _, err := j.agent.Stop(t.Context(), 0); return err },
		func(j joined) error { return os.RemoveAll(j.ClusterDir("far")) },
		func(j joined) error { return os.Remove(j.agent.Log) },
	}
	for killed := range steps {
		j := newJoined(t)
		for _, step := range steps[:killed+1] {
			if err := step(j); err != nil {
				t.Fatal(err)
			}
		}
		clitest.Run(t.Context(), "", "unjoin", "--local", "--cluster-name", "far").Succeeds(t, "The status of mcl far will be unknown")
		j.isThere(t, false)
	}
}

func TestUnjoinForce(t *testing.T) {
	j := newJoined(t)
	j.putApplied(t, "web", "a1")
	clitest.Run(t.Context(), "", "unjoin", "--local", "--cluster-name", "far", "--force").Succeeds(t, "What it applied stays there", "work web (objects: 2)")
	j.isThere(t, false)
	if !j.cluster.Has(appliedPath + "/web") {
		t.Error("it took off what it was to leave")
	}
}

// O18: a cluster that is gone for good does not keep its agent.
func TestUnjoinWithoutCluster(t *testing.T) {
	j := newJoined(t)
	j.cluster.Close()
	clitest.Run(t.Context(), "", "unjoin", "--local", "--cluster-name", "far").Fails(t, "cluster far cannot be asked", "connection refused", "--force")
	j.isThere(t, true)
	got := clitest.Run(t.Context(), "", "unjoin", "--local", "--cluster-name", "far", "--force")
	got.Succeeds(t, "The agent of cluster far is removed")
	if !strings.Contains(got.ErrOut, "cannot be asked") {
		t.Errorf("no warning: %s", got.ErrOut)
	}
	j.isThere(t, false)
}

// tokenAccount is a service account that an agent has made for a ManagedServiceAccount.
func tokenAccount(agent string) string {
	return `{"metadata":{"uid":"1","labels":{"authentication.open-cluster-management.io/is-managed-serviceaccount":"true"},
		"annotations":{"capstan.io/agent-id":"` + agent + `"}}}`
}

// CA-19 MS-04 KL-36: the tokens that the hub has of the cluster end with the agent: those of another hub do not. What stays is named.
func TestUnjoinEndsTokens(t *testing.T) {
	const usual, marked, own = namespacesPath + "open-cluster-management-agent-addon", namespacesPath + "team", "/serviceaccounts/ci"
	denied := fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden,
		`serviceaccounts is forbidden: User "agent" cannot list resource "serviceaccounts" in API group ""`)
	broken := fakehub.Refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError, "broken")
	for name, test := range map[string]struct {
		answer http.HandlerFunc // to the list of accounts in the usual namespace; nil is the list
		flags  []string
		fails  bool
		says   string
	}{
		"it may":           {},
		"it may not":       {answer: denied, says: "cannot list resource"},
		"it fails":         {answer: broken, fails: true, says: "--force removes the agent all the same"},
		"it fails, forced": {answer: broken, flags: []string{"--force"}, says: "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoined(t)
			account := func(path, agent string) {
				put(t, j.cluster, map[string]string{path: "ServiceAccount"}, map[string]string{path: tokenAccount(agent)})
			}
			put(t, j.cluster, map[string]string{usual: "Namespace", marked: "Namespace"},
				map[string]string{marked: `{"metadata":{"labels":{"service-accounts.capstan.io/agent-1234":"true"}}}`})
			account(usual+own, "a1")
			account(usual+"/serviceaccounts/other", "a2")
			account(marked+own, "a1")
			if test.answer != nil {
				j.cluster.Handle("GET "+usual+"/serviceaccounts", test.answer)
			}
			got := clitest.Run(t.Context(), "", append([]string{"unjoin", "--local", "--cluster-name", "far"}, test.flags...)...)
			if (got.Code != 0) != test.fails || !strings.Contains(got.ErrOut, test.says) ||
				strings.Contains(got.ErrOut, "may stay, with the tokens") != (test.answer != nil) {
				t.Errorf("it ends with %d, and says: %s", got.Code, got.ErrOut)
			}
			stays := test.answer != nil
			if j.cluster.Has(usual+own) != stays || !j.cluster.Has(usual+"/serviceaccounts/other") || j.cluster.Has(marked+own) {
				t.Errorf("it leaves %v", j.cluster.Paths())
			}
			if !test.fails {
				j.isThere(t, false)
			} else if names, err := j.JoinedNames(); err != nil || !slices.Contains(names, "far") {
				t.Errorf("the agent is removed: %v, %v", names, err)
			}
		})
	}
}
