package cli_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

// CA-04: what keeps a playground from starting is removed as errors advise, and the playground starts then: here, it says what it would
// start.
func TestAdviceForThePlayground(t *testing.T) {
	programs := t.TempDir()
	for _, name := range []string{"capstan-hub", "capstan-sandbox", "capstan-agent"} {
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", programs)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	two := playground.State{Hub: &playground.HubState{Port: 1},
		Clusters: []playground.ClusterState{{Name: "cluster1", Port: 2}, {Name: "cluster2", Port: 3}}}
	for name, test := range map[string]struct {
		state  playground.State
		broken bool
		args   string
		advice string
		then   string
	}{
		"a broken state":   {broken: true, args: "up --dry-run", advice: "down --purge", then: "up --dry-run"},
		"less than before": {state: two, args: "up --clusters 1 --dry-run", advice: "down --purge", then: "up --clusters 1 --dry-run"},
		"a port of another": {state: playground.State{Hub: &playground.HubState{Port: port}}, args: "up", advice: "down --purge",
			then: "up --dry-run"},
		"to leave its hub": {state: two, args: "unjoin --local --cluster-name cluster1", advice: "down --purge", then: "up --dry-run"},
		"a name of another": {state: playground.State{Joined: []playground.Member{{Name: "cluster1", Kubeconfig: clitest.NewHub(t).File}}},
			args: "up --dry-run", advice: "unjoin --local --cluster-name cluster1", then: "up --dry-run"},
	} {
		t.Run(name, func(t *testing.T) {
			home := playground.Home{Dir: filepath.Join(t.TempDir(), "home")}
			t.Setenv(playground.EnvHome, home.Dir)
			unlock, err := home.Lock() // makes the folders
			if err != nil {
				t.Fatal(err)
			}
			unlock()
			if err := home.Save(test.state); err != nil {
				t.Fatal(err)
			}
			if test.broken {
				if err := os.WriteFile(filepath.Join(home.Dir, "playground.yaml"), []byte("hubb: {}"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			refused := clitest.Run(t.Context(), "", strings.Fields(test.args)...)
			refused.Fails(t, "\"capstan "+test.advice+"\"")
			clitest.Run(t.Context(), "", strings.Fields(test.advice)...).Succeeds(t)
			clitest.Run(t.Context(), "", strings.Fields(test.then)...).Succeeds(t, "would start hub")
		})
	}
}
