package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

// userWithPlayground is a user who has a playground, and a hub in ~/.kube/config, by some context.
func userWithPlayground(t *testing.T, context string) (playing, own clitest.Hub) {
	t.Helper()
	dir := t.TempDir()
	home := playground.Home{Dir: filepath.Join(dir, ".capstan")}
	t.Setenv("HOME", dir)
	t.Setenv(playground.EnvHome, home.Dir)
	t.Setenv("KUBECONFIG", "")
	playing, own = clitest.NewHubWithClusters(t), clitest.NewHubWithClusters(t)
	playing.File, own.File = home.Kubeconfig(), filepath.Join(dir, ".kube", "config")
	playing.Hub.Kubeconfig(t, playing.File, "hub")
	own.Hub.Kubeconfig(t, own.File, context)
	if err := home.Save(playground.State{}); err != nil {
		t.Fatal(err)
	}
	const tokens = "POST /api/v1/namespaces/open-cluster-management/serviceaccounts/agent-registration-bootstrap/token"
	for _, h := range []clitest.Hub{playing, own} {
		h.Handle(tokens, fakehub.JSON(`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"secret"}}`))
	}
	return playing, own
}

// CA-01: a command that changes something on the hub of the playground says so where the user may have meant another hub, whatever becomes
// of it; one that reads does not, and neither says it among its results.
func TestSaysWhichHubIsChanged(t *testing.T) {
	playing, own := userWithPlayground(t, "prod")
	file := writeManifest(t)
	for args, noted := range map[string]bool{
		"accept --clusters cluster1":                        true,
		"deny --clusters cluster1 --dry-run":                true,
		"get token":                                         true,
		"get token -o json":                                 true,
		"get token --dry-run":                               true,
		"delete token --dry-run":                            true,
		"create clusterset eu":                              true,
		"delete clusterset gone":                            true,
		"clusterset bind eu --namespace team-a":             true,
		"clusterset unbind eu --namespace team-a":           true,
		"clusterset set eu --clusters cluster1":             true,
		"create placement web --namespace team-a":           true,
		"create sampleapp":                                  true,
		"create work web --clusters cluster1 -f " + file:    true,
		"delete work gone --clusters cluster1":              true,
		"addon create hello -f " + file:                     true,
		"addon enable --names hello --clusters cluster1":    true,
		"addon disable --names other --clusters cluster1":   true,
		"install hub-addon --names argocd":                  true,
		"uninstall hub-addon --names argocd --dry-run":      true,
		"get clusters":                                      false,
		"get clusters -o json":                              false,
		"get works":                                         false,
		"create clusterset eu --dry-run":                    false, // which shows an object, and reads no hub
		"status":                                            false,
		"down --dry-run":                                    false,
		"config current-context":                            false,
		"create clusterset eu --context hub":                false,
		"create clusterset eu --context prod":               false,
		"create clusterset eu --kubeconfig " + own.File:     false,
		"create clusterset eu --kubeconfig " + playing.File: false,
	} {
		t.Run(strings.ReplaceAll(args, file, "FILE"), func(t *testing.T) {
			got := clitest.Run(t.Context(), "", strings.Fields(args)...)
			note := `The hub is that of the playground, context "hub" of ` + playing.File + ", which goes before your " + own.File +
				". For a hub that the latter leads to, add --kubeconfig " + own.File + ".\n"
			if want := map[bool]int{true: 1}[noted]; strings.Count(got.ErrOut, note) != want {
				t.Errorf("%q is not there %d times in:\n%s", note, want, got.ErrOut)
			}
			if strings.Contains(got.Out, "playground") && !strings.HasPrefix(args, "status") {
				t.Errorf("the result speaks of the playground:\n%s", got.Out)
			}
			if strings.Contains(args, "-o json") && !json.Valid([]byte(got.Out)) {
				t.Errorf("this is no JSON:\n%s", got.Out)
			}
		})
	}
}

// CA-01: a user who has named a kubeconfig by the variable, or has none, hears nothing.
func TestSaysNothingOfTheOnlyHub(t *testing.T) {
	playing, _ := userWithPlayground(t, "prod")
	quiet := func(name string) {
		t.Helper()
		got := clitest.Run(t.Context(), "", "create", "clusterset", name)
		got.Succeeds(t)
		if strings.Contains(got.ErrOut, "playground") || !playing.Has(clitest.SetsPath+"/"+name) {
			t.Errorf("set %s: %s", name, got.ErrOut)
		}
	}
	t.Setenv("KUBECONFIG", playing.File)
	quiet("by-the-variable")
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	quiet("without-another")
}

// CA-04: a context that the playground and the user have is that of neither, until one is named as the error advises, or the playground is
// gone.
func TestAdviceForAContextOfThePlayground(t *testing.T) {
	playing, own := userWithPlayground(t, "hub")
	create := func(set string, more ...string) clitest.Result {
		return clitest.Run(t.Context(), "", append([]string{"create", "clusterset", set, "--context", "hub"}, more...)...)
	}
	refused := create("eu")
	refused.Fails(t, playing.File, own.File, "--kubeconfig", "\"capstan down --purge\"")
	if playing.Has(clitest.SetsPath+"/eu") || own.Has(clitest.SetsPath+"/eu") {
		t.Error("the set has been created all the same")
	}
	create("eu", "--kubeconfig", playing.File).Succeeds(t)
	create("asia", "--kubeconfig", own.File).Succeeds(t)
	clitest.Run(t.Context(), "", "down").Succeeds(t)
	create("prod").Fails(t, "--kubeconfig") // what stays comes back with the next "up"
	clitest.Run(t.Context(), "", "down", "--purge").Succeeds(t)
	create("prod").Succeeds(t)
	for path, of := range map[string]clitest.Hub{"/eu": playing, "/asia": own, "/prod": own} {
		if !of.Has(clitest.SetsPath + path) {
			t.Errorf("%s is missing", path)
		}
	}
}

// A folder that is somebody else's is no playground: "up" refuses it, "down" leaves it alone.
func TestFolderWithoutPlayground(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(playground.EnvHome, dir)
	file := filepath.Join(dir, "clusters", "prod", "app.yaml")
	if err := playground.WriteSecretFile(file, []byte("kind: ConfigMap")); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"down", "down --purge", "down --purge --dry-run"} {
		clitest.Run(t.Context(), "", strings.Fields(args)...).Succeeds(t, "There is no playground in "+dir)
	}
	clitest.Run(t.Context(), "", "up", "--dry-run").Fails(t, playground.EnvHome, dir+" has clusters")
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 1 {
		t.Errorf("it has %v, error %v, want clusters alone", left, err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// "down --dry-run" lists what "down" stops, which the state need not have, and asks no hub.
func TestDryRunOfDown(t *testing.T) {
	playing, _ := userWithPlayground(t, "prod")
	home, err := playground.DefaultHome()
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := home.Lock() // makes the folders
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	clitest.Run(t.Context(), "", "down", "--dry-run").Succeeds(t, "would stop nothing")
	process, _, err := home.Processes().Start(playground.Program{Name: "hub", Path: "/bin/sh", Args: []string{"-c", "exec sleep 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = process.Stop(context.Background(), 0) })
	for _, state := range []playground.State{{}, {Hub: &playground.HubState{Port: 1}}} {
		if err := home.Save(state); err != nil {
			t.Fatal(err)
		}
		clitest.Run(t.Context(), "", "down", "--dry-run").Succeeds(t, fmt.Sprintf("would stop hub, process %d", process.PID))
	}
	if asked := playing.Requests("GET"); len(asked) > 0 {
		t.Errorf("it has asked the hub: %v", asked)
	}
	if !process.Running() {
		t.Error("the process is stopped")
	}
}

// What "down --purge" would remove is listed.
func TestDryRunOfPurge(t *testing.T) {
	userWithPlayground(t, "prod")
	home, err := playground.DefaultHome()
	if err != nil {
		t.Fatal(err)
	}
	got := clitest.Run(t.Context(), "", "down", "--purge", "--dry-run")
	got.Succeeds(t, "would remove "+home.Kubeconfig(), "would remove "+filepath.Join(home.Dir, "playground.yaml"))
	if strings.Contains(got.Out, "clusters") {
		t.Errorf("it would remove what is not there:\n%s", got.Out)
	}
}
