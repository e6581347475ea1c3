// Package walkthrough does on clusters with real pods what the documents tell users to do: with the command line, the images and the
// operators, as they are released.
package walkthrough

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/realcluster"
)

// Where make puts the images of this commit, and the tag of these.
const (
	images = "../../bin/images"
	tag    = "test"
)

// alive bounds how many clusters run at a time. Mostly they wait for something, but with more than eight on two cores nodes take minutes to
// start, and containerd finds no more of the 128 inotify instances that a user has by default.
var alive = semaphore.NewWeighted(8)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(env.Run(m))
}

// start starts clusters for the test as soon as there is room for all of them.
func start(t *testing.T, names ...string) []cluster {
	t.Helper()
	if err := alive.Acquire(t.Context(), int64(len(names))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { alive.Release(int64(len(names))) })
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
