package work

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
)

const diffWorkLong = `Show what would change on each cluster if the work had these manifests.

The API server of each cluster goes through everything but the writing: validation, defaults, admission, the rights of the
executor. So an object counts as changed, too, when a user changed it on the cluster. Values of Secrets are not shown.

The work need not exist. If it does, the rest of its spec stays as it is: what its manifestConfigs ignore is no difference.
The clusters have to be available, and an agent of Capstan has to apply their works: it is asked first, with a work that
changes nothing, and gets the manifests once it has answered. That takes the right to create, update and delete works.

The exit code is that of "kubectl diff": 0 without a difference, 1 with one, 2 if something went wrong or would fail.`

// workDiff is one run of "capstan diff work".
type workDiff struct {
	workFlags
	format *output.Choice
}

// NewDiffCommand is "capstan diff work".
func NewDiffCommand(global *options.Global) *cobra.Command {
	f := &workDiff{workFlags: workFlags{Global: global}}
	command := &cobra.Command{
		Use:     "work NAME -f FILE --clusters CLUSTER,...",
		Aliases: []string{"works", "manifestwork"},
		Short:   "Show what would change on clusters if a work had these manifests",
		Long:    diffWorkLong,
		Example: "  capstan diff work web -f manifests/ --clusters cluster1,cluster2\n" +
			"  capstan diff work web -k overlays/prod --placement default/web -o table",
		Args:        options.ExactName,
		Annotations: map[string]string{options.ComparesAnnotation: ""},
	}
	f.add(command)
	command.ValidArgsFunction = completeWork(global, &f.clusters)
	f.format = options.AddOutputFlag(command, output.Tree, output.Table, output.YAML, output.JSON)
	command.RunE = func(command *cobra.Command, args []string) error {
		ctx, cancel := f.Limited(command.Context())
		defer cancel()
		d, err := f.delivery(ctx, args[0])
		if err != nil {
			return err
		}
		d.overwrite = true
		return f.WithHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			return f.diff(ctx, hub, d)
		})
	}
	return command
}

func (f *workDiff) diff(ctx context.Context, hub *hubapi.Hub, d *delivery) error {
	planned, err := d.plan(ctx, hub)
	if err != nil {
		return err
	}
	dryRuns, err := d.dryRun(ctx, hub, planned)
	if len(planned.deliveries) == 0 && len(planned.passedOver) > 0 {
		err = planned.decisions.SelectsNone(planned.passedOver)
	}
	if len(dryRuns) > 0 || err == nil {
		err = errors.Join(f.Print(f.format.Format(), output.DryRuns(dryRuns)), err, wouldFail(dryRuns))
	}
	if err != nil {
		return err
	}
	for i := range dryRuns {
		if dryRuns[i].Differs() {
			return options.ErrDiffers
		}
	}
	return nil
}
