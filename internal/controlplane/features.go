package controlplane

import (
	"fmt"
	"sync"

	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// kubernetesFeatures are the feature gates of Kubernetes that a hub changes. They are for the whole process.
var kubernetesFeatures = map[string]bool{
	// A list that comes as a watch ends with a bookmark, and those are sent once a second: every informer, of the hub
	// and of its agents, would wait that long. A plain list is there in milliseconds.
	"WatchList":       false,
	"WatchListClient": false,
	// API servers publish who and where they are, with a write every few seconds. Nothing here uses it.
	"APIServerIdentity":                   false,
	"UnknownVersionInteroperabilityProxy": false,
	// Every few minutes all of etcd is read and decoded to be compared with the watch caches: with a thousand clusters that
	// took 6 % of the processor and 130 MB, to find faults in Kubernetes' own cache.
	"DetectCacheInconsistency": false,
	// A watch cache keeps a snapshot of its B-tree for each event, so that each write copies a part of the tree, for lists of a former
	// version: those that go on page by page. These are read from etcd.
	"ListFromCacheSnapshot": false,
	// Every minute, each watch cache returns its keys as of now. That of a kind of which nothing changes does not learn how far
	// etcd is: it waits for three seconds, and fails, which is logged. Lists cost as much as there are objects then.
	"SizeBasedListCostEstimate": false,
}

// setFeatures is done once in a process, before anything reads the gates.
var setFeatures = sync.OnceValue(func() error {
	if err := compatibility.DefaultComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("set the versions of the API server: %w", err)
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(kubernetesFeatures); err != nil {
		return fmt.Errorf("set the feature gates of the API server: %w", err)
	}
	return nil
})
