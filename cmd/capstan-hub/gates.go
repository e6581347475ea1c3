package main

import (
	"fmt"

	"github.com/spf13/pflag"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/featuregate"

	"github.com/capstan-io/capstan/internal/admission"
	"github.com/capstan-io/capstan/internal/admission/inprocess"
)

// Feature gates that change something in this version.
const (
	clusterProfile             featuregate.Feature = "ClusterProfile"
	defaultClusterSet          featuregate.Feature = "DefaultClusterSet"
	managedClusterAutoApproval featuregate.Feature = "ManagedClusterAutoApproval"
	nilExecutorValidating      featuregate.Feature = "NilExecutorValidating"
)

type gates struct{ featuregate.MutableFeatureGate }

func newGates() gates {
	set := featuregate.NewFeatureGate()
	utilruntime.Must(set.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		clusterProfile:             {Default: false, PreRelease: featuregate.Alpha},
		defaultClusterSet:          {Default: true, PreRelease: featuregate.Alpha},
		managedClusterAutoApproval: {Default: false, PreRelease: featuregate.Alpha},
		nilExecutorValidating:      {Default: false, PreRelease: featuregate.Alpha},
	}))
	return gates{set}
}

func (g gates) addFlag(flags *pflag.FlagSet) { g.AddFlag(flags) }

// admissionFlags are those of the admission rules, in process and as webhooks.
type admissionFlags struct {
	// manifestLimit is how many bytes the manifests of a ManifestWork may take (WH-10).
	manifestLimit int
}

const flagManifestLimit = "manifestLimit"

func newAdmissionFlags() admissionFlags {
	return admissionFlags{manifestLimit: admission.DefaultManifestLimit}
}

func (f *admissionFlags) add(flags *pflag.FlagSet) {
	flags.IntVar(&f.manifestLimit, flagManifestLimit, f.manifestLimit,
		"Most bytes that the manifests of one ManifestWork may take together; what etcd takes in one write, 1.5 MiB by default, bounds it.")
}

func (f *admissionFlags) options(g gates) (inprocess.Options, error) {
	options := inprocess.DefaultOptions()
	if f.manifestLimit < 1 {
		return options, fmt.Errorf("--%s=%d: a ManifestWork needs room for its manifests; use a number of bytes such as %d", flagManifestLimit, f.manifestLimit, admission.DefaultManifestLimit)
	}
	options.ManifestWork.Limit = f.manifestLimit
	options.DefaultClusterSet = g.Enabled(defaultClusterSet)
	options.ManifestWork.NilExecutorValidating = g.Enabled(nilExecutorValidating)
	return options, nil
}
