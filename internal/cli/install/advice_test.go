package install_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

const rootCAPath = "/api/v1/namespaces/kube-public/configmaps/kube-root-ca.crt"

// newHubWithTokens is a hub that shows its certificate authority to everybody and has tokens of both kinds. It does not accept the token
// old.
func newHubWithTokens(t *testing.T) clitest.Hub {
	t.Helper()
	h := clitest.NewHub(t)
	h.Handle("GET /apis/cluster.open-cluster-management.io/v1", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer old" {
			fakehub.Refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")(w, r)
			return
		}
		fakehub.JSON("{}")(w, r)
	})
	h.Handle("POST "+tokenPath, fakehub.JSON(`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"t"}}`))
	h.Put(t, rootCAPath, &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"},
		Data: map[string]string{"ca.crt": string(h.CA())},
	})
	h.Put(t, "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef", &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef", Labels: map[string]string{"app": "cluster-manager"}},
		Data:       map[string][]byte{"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef")},
	})
	return h
}

// CA-15, CA-17: whatever is wrong with the token or the way to the hub, the command that the hub prints, as errors advise, joins it; and
// the one that join prints has the hub accept the cluster.
func TestAdviceToGetToken(t *testing.T) {
	t.Parallel()
	const ofAccount, bootstrap = "get token", "get token --use-bootstrap-token"
	const otherHash = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	write := inDir(t)
	ca, otherFile := clitest.WriteCA(t, clitest.NewHub(t)), write("other.crt", otherCA(t)) // all fake hubs have the same authority
	noHub := clitest.NewHub(t)
	noHub.Handle("GET /apis/cluster.open-cluster-management.io/v1", http.NotFound)
	for name, test := range map[string]struct {
		flags  string // with HUB for the URL of the hub
		advice string
	}{
		"no token":                 {"--hub-apiserver HUB", ofAccount},
		"no hub":                   {"--hub-token t", ofAccount},
		"no TLS":                   {"--hub-token t --hub-apiserver http://hub.example.com", ofAccount},
		"a broken hash":            {"--hub-token t --hub-apiserver HUB --ca-cert-hash sha256:1", ofAccount},
		"the hash of another":      {"--hub-token t --hub-apiserver HUB --ca-cert-hash " + otherHash, ofAccount},
		"nothing vouches for it":   {"--hub-token t --hub-apiserver HUB", ofAccount},
		"a token that is worn out": {"--hub-token old --hub-apiserver HUB --ca-file " + ca, ofAccount},
		"an API server without a hub": {
			"--hub-token t --hub-apiserver " + noHub.URL + " --ca-file " + ca, ofAccount},
		"nothing is there": {"--hub-token t --hub-apiserver https://127.0.0.1:1 --ca-file " + ca, ofAccount},
		"the file of another authority": {
			"--hub-token t --hub-apiserver HUB --ca-file " + otherFile, ofAccount},
		"a bootstrap token that is unknown": {"--hub-token abc123.0123456789abcdef --hub-apiserver HUB", bootstrap},
		"signed with another token":         {"--hub-token zzz999.0123456789abcdef --hub-apiserver HUB", bootstrap},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, c := newHubWithTokens(t), newCluster(t)
			if name == "signed with another token" {
				publishWronglySigned(t, h)
			}
			kubeconfig := unverified(t, c)
			join := func(words []string) clitest.Result {
				return clitest.Run(t.Context(), "", append([]string{"--kubeconfig", kubeconfig}, words...)...)
			}
			refused := join(strings.Fields("join --cluster-name c1 " + strings.ReplaceAll(test.flags, "HUB", h.URL)))
			refused.Fails(t)
			printed := h.Follow(t, refused, test.advice)
			printed.Succeeds(t)
			_, command, found := strings.Cut(printed.Out, "    capstan ")
			if !found {
				t.Fatalf("no command to join with is in:\n%s", printed.Out)
			}
			joined := join(strings.Fields(strings.Replace(command, "<cluster_name>", "c1", 1)))
			joined.Succeeds(t)
			h.Put(t, clitest.ClustersPath+"/c1", clitest.Cluster("c1", nil))
			h.PutRequest(t, fakehub.JoinRequest(t, "c1-x", "c1", "a1"))
			h.Follow(t, joined, "accept --clusters c1").Succeeds(t)
		})
	}
}

// unverified is a kubeconfig that leads to a cluster, and vouches for no server.
func unverified(t *testing.T, c clitest.Hub) (file string) {
	t.Helper()
	return inDir(t)("kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
		"clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
		"users":[{"name":"c","user":{"token":"admin"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}]}`, c.URL))
}

// publishWronglySigned has a hub show to everybody how it is reached, with what is no signature by the bootstrap token with the ID zzz999.
func publishWronglySigned(t *testing.T, h clitest.Hub) {
	t.Helper()
	h.Put(t, clusterInfoPath, &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "cluster-info"},
		Data: map[string]string{"jws-kubeconfig-zzz999": "not a signature", "kubeconfig": fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"","cluster":{"server":%q,"certificate-authority-data":%q}}]}`,
			h.URL, base64.StdEncoding.EncodeToString(h.CA()))},
	})
}

// CA-41: what is not there to upgrade is installed as the error advises, and upgraded then.
func TestAdviceToInstallWhatIsUpgraded(t *testing.T) {
	t.Parallel()
	join := joinCommand(t, newHubToJoin(t))
	for what, test := range map[string]struct {
		advice string
		pairs  []string
	}{
		"clustermanager": {"init", nil},
		"klusterlet":     {"join", []string{"join", strings.Join(join, " ")}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := newClusterForHub(t)
			refused := h.Run(t, "", "upgrade", what)
			refused.Fails(t, "has no operator to upgrade")
			installed := h.Follow(t, refused, test.advice, test.pairs...)
			installed.Succeeds(t)
			if test.advice == "init" { // whose help says that "get token" prints its last command again
				installed.Succeeds(t, "capstan join --hub-token t --hub-apiserver "+h.URL)
				h.Run(t, "", "get", "token").Succeeds(t, "capstan join --hub-token t --hub-apiserver "+h.URL)
			}
			h.Run(t, "", "upgrade", what).Succeeds(t)
		})
	}
}

// CA-20: a hub with a cluster that is available is removed when that is taken from it as the error advises.
func TestAdviceToTakeClustersFromTheHub(t *testing.T) {
	t.Parallel()
	h, c := withManager(t), withAgent(t, "klusterlet", "open-cluster-management-agent", `{"clusterName":"c1"}`)
	serve(h, "/apis/cluster.open-cluster-management.io/v1", "managedclusters ManagedCluster")
	putAvailable(t, h)
	refused := h.Run(t, "", "clean")
	refused.Fails(t, "these clusters of the hub are available: c1")
	c.Follow(t, refused, "unjoin --cluster-name CLUSTER", "CLUSTER", "c1").Succeeds(t)
	h.DeleteAs(t, refused, "delete managedcluster CLUSTER", "CLUSTER", "c1")
	h.Run(t, "", "clean").Succeeds(t, "cleaned up successfully")
}

// CA-19: the agent of a cluster with works goes when an administrator of the hub has deleted the cluster, as the error advises, and the
// agent has therefore taken off what works have applied. The cluster that stays is deleted as the note says.
func TestAdviceToDeleteTheCluster(t *testing.T) {
	t.Parallel()
	const work = appliedPath + "/web"
	h, c := clitest.NewHub(t), withAgent(t, "klusterlet", "open-cluster-management-agent", `{"clusterName":"c1"}`)
	putAvailable(t, h)
	put(t, c, map[string]string{work: "AppliedManifestWork"}, map[string]string{work: `{"spec":{"agentID":"u1","manifestWorkName":"web"}}`})
	unjoin := []string{"unjoin", "--cluster-name", "c1"}
	refused := c.Run(t, "", unjoin...)
	refused.Fails(t)
	h.DeleteAs(t, refused, "delete managedcluster c1")
	c.Remove(t, work)
	unjoined := c.Run(t, "", unjoin...)
	unjoined.Succeeds(t)
	putAvailable(t, h) // as if it had not been deleted before
	h.DeleteAs(t, unjoined, "delete managedcluster c1")
}

// putAvailable gives a hub the cluster c1, which is available.
func putAvailable(t *testing.T, h clitest.Hub) {
	t.Helper()
	const cluster = clitest.ClustersPath + "/c1"
	put(t, h, map[string]string{cluster: "ManagedCluster"}, map[string]string{
		cluster: `{"spec":{"hubAcceptsClient":true},"status":{"conditions":[{"type":"ManagedClusterConditionAvailable","status":"True"}]}}`})
}

// CA-19: the same for an agent that runs as a process of this machine.
func TestAdviceToDeleteTheClusterOfALocalAgent(t *testing.T) {
	j, h := newJoined(t), clitest.NewHub(t)
	far := func() { h.Put(t, clitest.ClustersPath+"/far", clitest.AcceptedCluster("far")) }
	far()
	j.putApplied(t, "web", "a1")
	unjoin := []string{"unjoin", "--local", "--cluster-name", "far"}
	refused := clitest.Run(t.Context(), "", unjoin...)
	refused.Fails(t)
	h.DeleteAs(t, refused, "delete managedcluster far")
	j.cluster.Remove(t, appliedPath+"/web")
	unjoined := clitest.Run(t.Context(), "", unjoin...)
	unjoined.Succeeds(t)
	j.isThere(t, false)
	far()
	h.DeleteAs(t, unjoined, "delete managedcluster far")
}

// CA-19: works that keep an agent are seen on the hub, by the command that the error names, and the agent goes when they are gone.
func TestAdviceToSeeWorks(t *testing.T) {
	j, h := newJoined(t), clitest.NewHub(t)
	j.putApplied(t, "web", "a1")
	h.Put(t, clitest.ClustersPath+"/far", clitest.AcceptedCluster("far"))
	create := []string{"create", "work", "web", "--clusters", "far", "-f", inDir(t)("manifest.yaml", clitest.ConfigMap)}
	h.Run(t, "", create...).Succeeds(t)
	unjoin := []string{"unjoin", "--local", "--cluster-name", "far", "--wait"}
	waits := func(ctx context.Context) { _ = j.cluster.AwaitWatch(ctx, appliedPath) }
	late := clitest.TimesOutAfter(t, waits, "", unjoin...)
	late.Fails(t, "the agent goes on")
	h.Follow(t, late, "get works --cluster far").Succeeds(t, "web")
	h.Run(t, "", "delete", "work", "web", "--clusters", "far").Succeeds(t)
	j.cluster.Remove(t, appliedPath+"/web")
	clitest.Run(t.Context(), "", unjoin...).Succeeds(t)
	j.isThere(t, false)
}

// CA-19: an agent that does not run is started again as the error advises, and goes when it has taken off what it applied. It is "up" that
// is advised where there is a playground: here, that says what it would start. Elsewhere, nothing advises it.
func TestAdviceToStartTheAgent(t *testing.T) {
	programs := t.TempDir()
	for _, name := range []string{"capstan-hub", "capstan-sandbox", "capstan-agent"} {
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", programs+string(os.PathListSeparator)+os.Getenv("PATH"))
	j, unjoin := newJoined(t), []string{"unjoin", "--local", "--cluster-name", "far"}
	t.Cleanup(func() { clitest.Run(context.Background(), "", "down") }) // the agent that it starts, if the test fails
	j.putApplied(t, "web", "a1")
	stopped := clitest.Run(t.Context(), "", "down")
	stopped.Succeeds(t, "\"capstan join --local\"")
	status, refused := clitest.Run(t.Context(), "", "status"), clitest.Run(t.Context(), "", unjoin...)
	status.Fails(t, "not running: ", "far-agent", "\"capstan join --local\"")
	refused.Fails(t, "The agent does not run. Start it again with the \"capstan join --local\" of before")
	if said := stopped.Out + status.ErrOut + refused.ErrOut; strings.Contains(said, "capstan up") {
		t.Errorf("a command would make a playground that is advised in:\n%s", said)
	}

	state, err := j.Load()
	if err != nil {
		t.Fatal(err)
	}
	with := state
	with.Hub = &playground.HubState{Port: 1}
	if err := j.Save(with); err != nil {
		t.Fatal(err)
	}
	clitest.Run(t.Context(), "", unjoin...).Fails(t, "The agent does not run. Start it again with \"capstan up\"")
	clitest.Run(t.Context(), "", "up", "--dry-run").Succeeds(t, "would start far-agent")

	if err := j.Save(state); err != nil {
		t.Fatal(err)
	}
	clitest.Run(t.Context(), "", joinCommand(t, newHubToJoin(t), "--cluster-name", "far", "--local", "--detach",
		"--managed-cluster-kubeconfig", j.cluster.File)...).Succeeds(t, "capstan accept --clusters far")
	clitest.Run(t.Context(), "", unjoin...).Fails(t, "work web", "kubectl delete managedcluster far") // with an agent that runs
	j.cluster.Remove(t, appliedPath+"/web")
	clitest.Run(t.Context(), "", unjoin...).Succeeds(t)
	j.isThere(t, false)
}

// CA-19: the agents of this machine, one of which to remove was not said, are in the status that the error names.
func TestAdviceToSeeAgents(t *testing.T) {
	j := newJoined(t)
	refused := clitest.Run(t.Context(), "", "unjoin", "--local")
	refused.Fails(t, "cluster-name is missing")
	if shown := j.cluster.Follow(t, refused, "status"); !strings.Contains(shown.Out, "far-agent") {
		t.Errorf("the agent of cluster far is missing in:\n%s%s", shown.Out, shown.ErrOut)
	}
	clitest.Run(t.Context(), "", "unjoin", "--local", "--cluster-name", "far").Succeeds(t)
	j.isThere(t, false)
}
