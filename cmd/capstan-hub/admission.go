package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/capstan-io/capstan/internal/admission"
	"github.com/capstan-io/capstan/internal/admission/inprocess"
	"github.com/capstan-io/capstan/internal/gates"
)

// admissionFlags are those of the admission rules, in process and as webhooks.
type admissionFlags struct {
	// manifestLimit is how many bytes the manifests of a ManifestWork may take.
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

func (f *admissionFlags) options(g *gates.Set) (inprocess.Options, error) {
	options := inprocess.DefaultOptions()
	if f.manifestLimit < 1 {
		return options, fmt.Errorf("--%s=%d: a ManifestWork needs room for its manifests; use a number of bytes such as %d", flagManifestLimit, f.manifestLimit, admission.DefaultManifestLimit)
	}
	options.ManifestWork.Limit = f.manifestLimit
	options.DefaultClusterSet = g.Enabled(gates.DefaultClusterSet)
	options.ManifestWork.NilExecutorValidating = g.Enabled(gates.NilExecutorValidating)
	return options, nil
}
