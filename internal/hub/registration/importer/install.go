package importer

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/installer"
	"github.com/capstan-io/capstan/internal/program"
)

// chart is that of the operator, whose Deployment has the same name.
const chart = "klusterlet"

// installAgent does in a cluster what "capstan join" does there. It does no harm to an agent that the cluster has, either.
func installAgent(ctx context.Context, access *rest.Config, cluster string, values map[string]any) error {
	target, err := installation.New(access, program.Version())
	if err != nil {
		return fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	operator, err := target.Deployed(ctx, fleet.NamespaceOperators, chart)
	if err != nil {
		return err
	}
	if operator.Available { // it stays as it is, and is upgraded by whoever has installed it
		values["noOperator"] = true
	}
	objects, err := installer.Objects(chart, values)
	if err != nil {
		return failed(fleet.ReasonConfigRendererFailed, err)
	}
	if err := target.CheckAgents(ctx, cluster, objects); err != nil {
		return err
	}
	return target.Apply(ctx, objects, func(installation.Reference, installation.Change) {})
}
