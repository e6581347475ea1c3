// Package walkthrough does on clusters with real pods what the documents tell users to do: with the command line, the images and the
// operators, as they are released.
package walkthrough

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/realcluster"
)

// Where make puts the images of this commit, and the tag of these.
const (
	images = "../../bin/images"
	tag    = "test"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(env.Run(m))
}

// slow skips a test that each check has no time for, unless all tests are asked for.
func slow(t *testing.T) {
	t.Helper()
	if os.Getenv(realcluster.StartEnv) != "all" {
		t.Skip("it is slow: run make test-clusters-all")
	}
}

// start starts clusters for the test.
func start(t *testing.T, names ...string) []cluster {
	t.Helper()
	options := make([]realcluster.Options, len(names))
	for i, name := range names {
		options[i].Name = name
	}
	var clusters []cluster
	for _, started := range realcluster.StartAll(t, options...) {
		clusters = append(clusters, newCluster(t, started))
	}
	return clusters
}
