package main

import (
	"cmp"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/capstan-io/capstan/internal/admission"
	"github.com/capstan-io/capstan/internal/admission/inprocess"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// hubNamespace has the service accounts of the hub that this program is a component of.
func hubNamespace() string { return cmp.Or(os.Getenv(fleet.EnvHubNamespace), fleet.NamespaceHub) }

// admissionFlags are those of the admission rules, in process and as webhooks.
type admissionFlags struct {
	// manifestLimit is how many bytes the manifests of a ManifestWork may take.
	manifestLimit int
	// joinLimit is how much one bootstrap credential may request until an administrator decides.
	joinLimit int
}

const (
	flagManifestLimit = "manifestLimit"
	flagJoinLimit     = "join-limit"
)

func newAdmissionFlags() admissionFlags {
	return admissionFlags{manifestLimit: admission.DefaultManifestLimit, joinLimit: admission.DefaultJoinLimit}
}

func (f *admissionFlags) add(flags *pflag.FlagSet) {
	flags.IntVar(&f.manifestLimit, flagManifestLimit, f.manifestLimit,
		"Most bytes that the manifests of one ManifestWork may take together; what etcd takes in one write, 1.5 MiB by default, bounds it.")
}

// addCounting adds the flags of rules that count what is there, as only a standalone hub does.
func (f *admissionFlags) addCounting(flags *pflag.FlagSet) {
	flags.IntVar(&f.joinLimit, flagJoinLimit, f.joinLimit,
		"Most ManagedClusters that nobody has accepted, and most certificate requests that nobody has decided on, that one bootstrap credential may have at a time.")
}

func (f *admissionFlags) options(g *featuregates.Set) (inprocess.Options, error) {
	options := inprocess.DefaultOptions()
	if f.manifestLimit < 1 {
		return options, fmt.Errorf("--%s=%d: a ManifestWork needs room for its manifests; use a number of bytes such as %d", flagManifestLimit,
			f.manifestLimit, admission.DefaultManifestLimit)
	}
	if f.joinLimit < 1 {
		return options, fmt.Errorf("--%s=%d: nobody could join; use a number such as %d", flagJoinLimit, f.joinLimit, admission.DefaultJoinLimit)
	}
	options.ManifestWork.Limit, options.JoinLimit = f.manifestLimit, f.joinLimit
	options.HubNamespace = hubNamespace()
	options.DefaultClusterSet = g.Enabled(featuregates.DefaultClusterSet)
	options.ManifestWork.NilExecutorValidating = g.Enabled(featuregates.NilExecutorValidating) ||
		os.Getenv(fleet.EnvNilExecutorValidating) == "true"
	return options, nil
}
