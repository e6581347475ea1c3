package install_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// klusterletIn is the name of the Klusterlet that a dry run prints.
func klusterletIn(t *testing.T, dryRun clitest.Result) string {
	t.Helper()
	dryRun.Succeeds(t)
	for key := range objectsOf(t, dryRun) {
		if name, is := strings.CutPrefix(key, "Klusterlet/"); is {
			return name
		}
	}
	t.Fatalf("it prints no Klusterlet:\n%s", dryRun.Out)
	return ""
}

// CA-17: of the hosted agents that a cluster has for several hubs, the one for the hub is joined again.
func TestJoinHostedAgain(t *testing.T) {
	t.Parallel()
	hub, managed := newHubToJoin(t), clitest.NewHub(t)
	join := joinCommand(t, hub, "--mode", "hosted", "--managed-cluster-kubeconfig", managed.File)
	dryRun := append(slices.Clone(join), "--dry-run")
	first := klusterletIn(t, newCluster(t).Run(t, "", dryRun...))
	if !strings.HasPrefix(first, "klusterlet-hosted-") {
		t.Fatalf("the first agent has the name %s", first)
	}
	const one, two = "https://one.example.com", "https://two.example.com"
	for name, test := range map[string]struct {
		hubs    map[string]string // of hosted agents, by their names
		spec    string
		want    string
		refused bool
	}{
		"none":                               {want: first},
		"for this hub":                       {hubs: map[string]string{"a": hub.URL}, want: "a"},
		"the first is for this hub":          {hubs: map[string]string{"a": hub.URL, "b": one}, want: "a"},
		"the last is for this hub":           {hubs: map[string]string{"a": one, "b": hub.URL}, want: "b"},
		"the address is written otherwise":   {hubs: map[string]string{"a": hub.URL + "/", "b": one}, want: "a"},
		"this hub before a name":             {hubs: map[string]string{first: one, "z": hub.URL}, want: "z"},
		"this hub's former address":          {hubs: map[string]string{first: one, "z": two}, want: first, refused: true},
		"one, for another hub":               {hubs: map[string]string{"a": one}, want: "a", refused: true},
		"two, for other hubs":                {hubs: map[string]string{"a": one, "b": two}, want: "b", refused: true},
		"for another cluster":                {hubs: map[string]string{"a": hub.URL}, spec: `"clusterName":"c2"`, want: first},
		"for a cluster that the agent named": {hubs: map[string]string{"a": hub.URL}, spec: `"externalServerURLs":[]`, want: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newCluster(t)
			for agent, server := range test.hubs {
				spec := `"clusterName":"c1"`
				if test.spec != "" {
					spec = test.spec
				}
				putAgent(t, h, agent, agent, server, `{`+spec+`,"deployOption":{"mode":"Hosted"}}`)
				putClusterName(t, h, agent, "c1")
			}
			if got := klusterletIn(t, h.Run(t, "", dryRun...)); got != test.want {
				t.Errorf("it joins with Klusterlet %s, want %s", got, test.want)
			}
			got := h.Run(t, "", join...)
			if !test.refused {
				got.Succeeds(t)
				return
			}
			got.Fails(t, "Klusterlet "+test.want+" is the hosted agent of cluster c1 for the hub at "+test.hubs[test.want], "to "+hub.URL)
			if n := changes(h); n != 0 {
				t.Errorf("%d changes were made", n)
			}
		})
	}
}

// CA-17: a hosted agent is joined beside one whose Secrets may not be read.
func TestJoinHostedBesideAnotherAgent(t *testing.T) {
	t.Parallel()
	hub, managed := newHubToJoin(t), clitest.NewHub(t)
	h := newCluster(t)
	putAgent(t, h, "others", "others", "https://two.example.com", `{"deployOption":{"mode":"Hosted"}}`)
	h.Handle("GET "+namespacesPath+"others/secrets/hub-kubeconfig-secret",
		fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "secrets is forbidden"))
	h.Run(t, "", joinCommand(t, hub, "--mode", "hosted", "--managed-cluster-kubeconfig", managed.File)...).Succeeds(t)
}

// CA-16: a kubeconfig of the managed cluster that the operator would refuse is refused before anything is sent there, and the tokens of
// files go to the operator, which has no such files.
func TestJoinHostedKubeconfig(t *testing.T) {
	t.Parallel()
	hub := newHubToJoin(t)
	write := inDir(t)
	token, empty := write("token", "from-file\n"), write("empty", "\n")
	const right = "use a certificate or a token"
	for name, test := range map[string]struct {
		user    string
		token   string   // that the operator gets
		refused []string // without the name of the flag
	}{
		"a token":        {user: "token: given", token: "given"},
		"a file":         {user: "tokenFile: " + token, token: "from-file"},
		"a file as well": {user: "token: given, tokenFile: " + token, token: "from-file"},
		"an empty file":  {user: "tokenFile: " + empty, refused: []string{"its tokenFile " + empty + " is empty"}},
		"a program": {user: "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}",
			refused: []string{`for user "u": exec aws`, right}},
		"an auth provider": {user: "auth-provider: {name: gcp}", refused: []string{`for user "u": auth-provider gcp`, right}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, managed := newCluster(t), clitest.NewHub(t)
			file := inDir(t)("kubeconfig", "{apiVersion: v1, kind: Config, current-context: c,\n"+
				"contexts: [{name: c, context: {cluster: c, user: u}}],\n"+
				"clusters: [{name: c, cluster: {server: '"+managed.URL+"', certificate-authority: "+clitest.WriteCA(t, managed)+"}}],\n"+
				"users: [{name: u, user: {"+test.user+"}}]}")
			got := h.Run(t, "", joinCommand(t, hub, "--dry-run", "--mode", "Hosted", "--managed-cluster-kubeconfig", file)...)
			if test.refused != nil {
				got.Fails(t, append(test.refused, `--managed-cluster-kubeconfig: context "c" of `+file+": ")...)
				if sent := managed.Requests("GET"); len(sent) != 0 {
					t.Errorf("the managed cluster got %+v", sent)
				}
				return
			}
			got.Succeeds(t)
			config, err := clientcmd.Load([]byte(decodedAt(t, objectsOf(t, got), "Secret/external-managed-kubeconfig.data.kubeconfig")))
			if err != nil {
				t.Fatal(err)
			}
			if user := config.AuthInfos["u"]; user == nil || user.Token != test.token || user.TokenFile != "" {
				t.Errorf("the operator gets %+v", user)
			}
			if says := "The agent gets the token that " + token + " has now"; strings.Contains(got.ErrOut, says) != (test.token == "from-file") {
				t.Errorf("it says %s", got.ErrOut)
			}
		})
	}
}
