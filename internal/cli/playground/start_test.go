package playground

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	clusterPath = "/apis/cluster.open-cluster-management.io/v1/managedclusters/cluster1"
	workPath    = "/apis/work.open-cluster-management.io/v1/namespaces/cluster1/manifestworks/nginx"
	tokenPath   = "/api/v1/namespaces/open-cluster-management/serviceaccounts/agent-registration-bootstrap/token"
)

// newUp is a run of "up" for cluster1 with a hub that is ready.
func newUp(t *testing.T) (*upCluster, *fakehub.Hub, *recorder) {
	t.Helper()
	fake, report, home := fakehub.New(t), &recorder{}, newHome(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	fake.Kubeconfig(t, file, "hub")
	hub, err := hubapi.Connect(hubapi.Target{Kubeconfig: file})
	if err != nil {
		t.Fatal(err)
	}
	fake.Handle("POST "+tokenPath, fakehub.JSON(
		`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"fresh"}}`))
	self := &Process{Name: hubProcess, PID: os.Getpid(), StartedAt: time.Now(), exited: make(chan struct{})}
	u := &up{home: home, report: report, hub: hub, hubProcess: self, invitation: hubapi.Invitation{Server: fake.URL},
		trust: hubapi.Trust{CA: fake.CA()}}
	return u.cluster(ClusterState{Name: "cluster1"}), fake, report
}

func clusterWith(change func(*clusterv1.ManagedCluster), conditions ...metav1.Condition) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "ManagedCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	c.Status.Conditions = conditions
	if change != nil {
		change(c)
	}
	return c
}

func condition1(kind string, status metav1.ConditionStatus, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: "Any", Message: message}
}

func isDenied(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }

func isDeleted(c *clusterv1.ManagedCluster) {
	c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)}
	c.Finalizers = []string{fleet.FinalizerManagedCluster}
}

// An agent that runs gets a new token to join with when it has to join, and only then.
func TestRenewToken(t *testing.T) {
	t.Parallel()
	joined, available := condition1(fleet.ConditionJoined, "True", ""), condition1(fleet.ConditionClusterAvailable, "True", "")
	for name, test := range map[string]struct {
		cluster *clusterv1.ManagedCluster
		invited bool
	}{
		"deleted":       {nil, true},
		"being deleted": {clusterWith(isDeleted, joined, available), true},
		"never joined":  {clusterWith(nil), true},
		"lost":          {clusterWith(nil, joined, condition1(fleet.ConditionClusterAvailable, "Unknown", "")), true},
		"connected":     {clusterWith(nil, joined, available), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, fake, _ := newUp(t)
			if test.cluster != nil {
				fake.Put(t, clusterPath, test.cluster)
			}
			if err := u.renewTokenIfNeeded(t.Context()); err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(u.agent.bootstrapKubeconfig())
			if (err == nil) != test.invited || test.invited && !strings.Contains(string(content), "fresh") {
				t.Errorf("%v: %s", err, content)
			}
		})
	}
}

// A cluster that was denied is not accepted by the way; one that nobody has decided on is.
func TestDeniedIsNotAccepted(t *testing.T) {
	t.Parallel()
	decided := condition1(fleet.ConditionHubAccepted, "False", "Denied by hub cluster admin")
	for name, test := range map[string]struct {
		cluster *clusterv1.ManagedCluster
		says    string // empty if it may be accepted
	}{
		"new":      {clusterWith(isDenied), ""},
		"accepted": {clusterWith(nil), ""},
		"denied":   {clusterWith(isDenied, decided), "cluster cluster1 is denied on the hub"},
		"denied a moment ago": {clusterWith(func(c *clusterv1.ManagedCluster) {
			isDenied(c)
			c.Finalizers = []string{fleet.FinalizerManagedCluster}
		}), "cluster cluster1 is denied on the hub"},
		"cut off": {clusterWith(func(c *clusterv1.ManagedCluster) {
			isDenied(c)
			c.Labels = map[string]string{fleet.LabelCutOff: fleet.LabelTrue}
		}, decided), "cluster cluster1 is denied and cut off on the hub"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, fake, _ := newUp(t)
			fake.Put(t, clusterPath, test.cluster)
			err := u.awaitRegistered(t.Context())
			if test.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), "capstan accept --clusters cluster1") {
				t.Errorf("error %v, want %q", err, test.says)
			}
			if written := fake.Requests("PATCH"); len(written) > 0 {
				t.Errorf("it has written %v", written)
			}
		})
	}
}

// CA-04: the advice to accept a cluster is for the hub of the playground, wherever KUBECONFIG leads.
func TestAdviceIsForThePlayground(t *testing.T) {
	u, fake, _ := newUp(t)
	fake.Put(t, clusterPath, clusterWith(isDenied, condition1(fleet.ConditionHubAccepted, "False", "Denied by hub cluster admin")))
	own := filepath.Join(t.TempDir(), "own")
	fake.Kubeconfig(t, own, "prod")
	fake.Kubeconfig(t, u.home.Kubeconfig(), hubapi.PlaygroundContext)
	for variable, advised := range map[string]string{
		"": "capstan accept --clusters cluster1\"", own: "capstan accept --clusters cluster1 --kubeconfig " + u.home.Kubeconfig() + "\"",
	} {
		t.Setenv("KUBECONFIG", variable)
		if err := u.awaitRegistered(t.Context()); err == nil || !strings.Contains(err.Error(), advised) {
			t.Errorf("KUBECONFIG=%s: got %v, want %q", variable, err, advised)
		}
	}
}

// A cluster that is being deleted is not accepted; the one that the agent makes when it is gone is.
func TestBeingDeletedIsWaitedFor(t *testing.T) {
	t.Parallel()
	u, fake, _ := newUp(t)
	fake.Put(t, clusterPath, clusterWith(isDeleted))
	done := make(chan error)
	go func() { done <- u.awaitRegistered(t.Context()) }()
	if err := fake.AwaitWatch(t.Context(), strings.TrimSuffix(clusterPath, "/cluster1")); err != nil {
		t.Fatal(err)
	}
	fake.Put(t, clusterPath, clusterWith(isDenied))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What delays a cluster, by the hub's conditions and the agent's log.
func TestReasonNotJoined(t *testing.T) {
	t.Parallel()
	const problem = `time=2026-11-26T12:00:00Z level=ERROR msg="Cannot register" err="the token has \"expired\""` + "\n"
	const reported = `; the agent says: Cannot register: the token has "expired"`
	joined := condition1(fleet.ConditionJoined, "True", "")
	for name, test := range map[string]struct {
		cluster *clusterv1.ManagedCluster
		log     string
		want    string
	}{
		"not registered":          {nil, "", "the agent has not registered it on the hub yet"},
		"not registered, and why": {nil, problem, "the agent has not registered it on the hub yet" + reported},
		"being deleted":           {clusterWith(isDeleted), problem, "it is being deleted"},
		"being deleted, and why": {clusterWith(isDeleted, condition1(fleet.ConditionDeleting, "False", "1 manifestworks remain")), "",
			"it is being deleted: 1 manifestworks remain"},
		"its namespace is being deleted": {
			clusterWith(nil, condition1(fleet.ConditionHubAccepted, "False", "Namespace cluster1 is being deleted")),
			"", "the hub has not set it up: Namespace cluster1 is being deleted"},
		"no certificate": {clusterWith(nil, condition1(fleet.ConditionHubAccepted, "True", "")), problem,
			"the agent has no certificate of the hub yet" + reported},
		"not available": {clusterWith(nil, joined, condition1(fleet.ConditionClusterAvailable, "Unknown", "stopped updating its lease")), "",
			"it is not available: stopped updating its lease"},
		"no heartbeat": {clusterWith(nil, joined, condition1(fleet.ConditionClusterAvailable, "True", "")), "", ""},
		"no heartbeat, and why": {clusterWith(nil, joined, condition1(fleet.ConditionClusterAvailable, "True", "")), problem,
			strings.TrimPrefix(reported, "; ")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, fake, _ := newUp(t)
			if test.cluster != nil {
				fake.Put(t, clusterPath, test.cluster)
			}
			log := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(log, []byte("level=INFO msg=Hello\n"+test.log+"level=INFO msg=Trying\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := u.reasonNotJoined(t.Context(), followLog(&Process{Log: log}, true)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// What an agent that runs has written before is about something else.
func TestLogProblemsBefore(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	write := func(line string) {
		t.Helper()
		file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString(line + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	write("level=ERROR msg=Before err=old")
	w := followLog(&Process{Log: log}, false)
	if got := w.last(); got != "" {
		t.Errorf("got %q", got)
	}
	write("level=WARN msg=After")
	if got := w.last(); got != "After" {
		t.Errorf("got %q", got)
	}
	if got := (&logProblems{file: log + ".none"}).last(); got != "" {
		t.Errorf("of no log: %q", got)
	}
}

// What delays the sample.
func TestReasonNoSample(t *testing.T) {
	t.Parallel()
	applied := condition1(fleet.ConditionApplied, "True", "")
	for name, test := range map[string]struct {
		conditions []metav1.Condition
		want       string
	}{
		"not reported": {nil, "the agent has not reported on the sample yet"},
		"not applied":  {[]metav1.Condition{condition1(fleet.ConditionApplied, "False", "no kind")}, "the sample is not Applied: no kind"},
		"not available": {[]metav1.Condition{applied, condition1(fleet.ConditionAvailable, "False", "0 of 1")},
			"the sample is not Available: 0 of 1"},
		"all is well": {[]metav1.Condition{applied, condition1(fleet.ConditionAvailable, "True", "")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, fake, _ := newUp(t)
			work := &workv1.ManifestWork{TypeMeta: metav1.TypeMeta{APIVersion: workv1.GroupVersion.String(), Kind: "ManifestWork"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "nginx"}}
			for _, c := range test.conditions {
				meta.SetStatusCondition(&work.Status.Conditions, c)
			}
			fake.Put(t, workPath, work)
			if got := u.reasonNoSample(t.Context()); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// An agent that has joined joins anew when its cluster is gone from the hub, and not before; one that has not joined need not.
func TestAwaitDeletion(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		joined  bool
		cluster *clusterv1.ManagedCluster
		deleted bool
	}{
		"never joined":     {false, nil, false},
		"there":            {true, clusterWith(nil), false},
		"denied":           {true, clusterWith(isDenied), false},
		"gone":             {true, nil, true},
		"goes a bit later": {true, clusterWith(isDeleted), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, fake, _ := newUp(t)
			for _, key := range []string{fleet.KeyKubeconfig, fleet.KeyTLSCert, fleet.KeyTLSKey, fleet.KeyAgentName} {
				if err := WriteSecretFile(filepath.Join(u.agent.dir(), key), []byte("x")); test.joined && err != nil {
					t.Fatal(err)
				}
			}
			if !test.joined {
				if err := u.agent.removeCredential(); err != nil {
					t.Fatal(err)
				}
				if name, err := u.agent.Name(); err != nil || name != "x" {
					t.Errorf("the agent is %q, %v", name, err)
				}
			}
			if test.cluster != nil {
				fake.Put(t, clusterPath, test.cluster)
			}
			if test.cluster != nil && test.deleted {
				go func() {
					if fake.AwaitWatch(t.Context(), strings.TrimSuffix(clusterPath, "/cluster1")) == nil {
						fake.Remove(t, clusterPath)
					}
				}()
			}
			runs := &Process{Name: "any", PID: os.Getpid(), exited: make(chan struct{})}
			u.sandboxProcess, u.agentProcess = runs, runs
			deleted, err := u.awaitDeletion(t.Context())
			if err != nil || deleted != test.deleted {
				t.Errorf("%t, %v", deleted, err)
			}
		})
	}
}

// Reasons are reported within seconds, each once; the last one goes into the error of a wait that is cut short.
func TestReasonsAreReported(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	reasons := []string{"a", "a", "", "b", "a", "b"}
	var reported []string
	var waits []time.Duration
	after := func(wait time.Duration) <-chan time.Time {
		waits = append(waits, wait)
		tick := make(chan time.Time, 1)
		if len(reasons) == 0 {
			cancel()
		} else {
			tick <- time.Time{}
		}
		return tick
	}
	last := reportReasons(ctx, after, func(context.Context) string {
		reason := reasons[0]
		reasons = reasons[1:]
		return reason
	}, func(reason string) { reported = append(reported, reason) })
	if got := strings.Join(reported, " "); got != "a b" || last != "b" {
		t.Errorf("told %q, at last %q", got, last)
	}
	if waits[0] != reasonsDelay || waits[1] != reasonsInterval || reasonsDelay > 10*time.Second {
		t.Errorf("it looks after %v", waits)
	}

	done := errors.New("it went wrong")
	if err := waitReportingReasons(t.Context(), &recorder{}, "cluster1", func(context.Context) string { return "why" },
		func(context.Context) error { return done }); !errors.Is(err, done) || err.Error() != done.Error() {
		t.Errorf("a wait that fails by itself: %v", err)
	}
}

// A probe that is cut short when the time is up does not replace what the server has said before.
func TestProbeCutShort(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	fakehub.New(t).Kubeconfig(t, file, "hub")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	probes := 0
	_, err := awaitServer(ctx, &Process{Name: hubProcess, exited: make(chan struct{})}, file, func(*hubapi.Hub, context.Context) error {
		if probes++; probes == 1 {
			return errors.New("etcd has no leader")
		}
		cancel(context.DeadlineExceeded)
		return errors.New("the request was cut short")
	})
	if err == nil || !strings.Contains(err.Error(), "hub is not ready in time: etcd has no leader") {
		t.Errorf("error %v", err)
	}
}

// endOfTime is a reporter that ends the time once a cluster waits for nothing but the hub.
type endOfTime struct {
	recorder
	missing atomic.Int32
	end     context.CancelCauseFunc
}

func (r *endOfTime) Wait(_, what string) {
	if what == "waiting for the hub" {
		r.reached()
	}
}

func (r *endOfTime) Done(subject, _ string) {
	if subject == sandboxProcess("cluster1") {
		r.reached()
	}
}

func (r *endOfTime) reached() {
	if r.missing.Add(-1) == 0 {
		r.end(context.DeadlineExceeded)
	}
}

// Where the hub is not ready in time, the error says so, and not that clusters have waited for it.
func TestHubIsNotReadyInTime(t *testing.T) {
	programs := t.TempDir()
	for _, name := range []string{hubBinary, sandboxBinary, agentBinary} {
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", programs+string(os.PathListSeparator)+os.Getenv("PATH"))
	home, server, cluster1 := newHome(t), fakehub.New(t), ClusterState{Name: "cluster1", Port: 2}
	for _, path := range []string{"/livez", "/readyz"} {
		server.Handle("GET "+path, fakehub.JSON("{}"))
	}
	server.Kubeconfig(t, home.sandbox(cluster1).kubeconfig(), "sandbox")
	t.Cleanup(func() {
		if _, err := home.Down(context.Background(), false, &recorder{}); err != nil {
			t.Error(err)
		}
	})
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	report := &endOfTime{end: end}
	report.missing.Store(2) // that the sandbox is ready, and that the cluster waits
	err := home.start(ctx, State{Hub: &HubState{Port: 1}, Clusters: []ClusterState{cluster1}}, report)
	if err == nil || !strings.Contains(err.Error(), "hub is not ready in time") {
		t.Errorf("error %v", err)
	}
}
