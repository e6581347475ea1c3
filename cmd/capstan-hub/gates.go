package main

import (
	"github.com/spf13/pflag"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/featuregate"

	"github.com/capstan-io/capstan/internal/admission/inprocess"
)

// Feature gates that change something in this version.
const (
	defaultClusterSet          featuregate.Feature = "DefaultClusterSet"
	managedClusterAutoApproval featuregate.Feature = "ManagedClusterAutoApproval"
	nilExecutorValidating      featuregate.Feature = "NilExecutorValidating"
)

type gates struct{ featuregate.MutableFeatureGate }

func newGates() gates {
	set := featuregate.NewFeatureGate()
	utilruntime.Must(set.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		defaultClusterSet:          {Default: true, PreRelease: featuregate.Alpha},
		managedClusterAutoApproval: {Default: false, PreRelease: featuregate.Alpha},
		nilExecutorValidating:      {Default: false, PreRelease: featuregate.Alpha},
	}))
	return gates{set}
}

func (g gates) addFlag(flags *pflag.FlagSet) { g.AddFlag(flags) }

func (g gates) admission() inprocess.Options {
	options := inprocess.DefaultOptions()
	options.DefaultClusterSet = g.Enabled(defaultClusterSet)
	options.ManifestWork.NilExecutorValidating = g.Enabled(nilExecutorValidating)
	return options
}
