package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/output"
)

// errDiffers is how a command ends that compared and found a difference. There is nothing to say of it that was not said.
var errDiffers = errors.New("there are differences")

// comparesAnnotation marks commands whose exit code 1 is a difference, so that what goes wrong has another: 2.
const comparesAnnotation = "compares"

func (a *app) diffCommand() *cobra.Command {
	return parent("diff", "Show what would change on clusters", a.diffWorkCommand())
}

const diffWorkLong = `Show what would change on each cluster if the work had these manifests.

The API server of each cluster goes through everything but the writing: validation, defaults, admission, the rights of the
executor. So an object counts as changed, too, when a user changed it on the cluster. Values of Secrets are not shown.

The work need not exist. If it does, the rest of its spec stays as it is: what its manifestConfigs ignore is no difference.
The clusters have to be available, and to have an agent of Capstan.

The exit code is that of "kubectl diff": 0 without a difference, 1 with one, 2 if something went wrong or would fail.`

func (a *app) diffWorkCommand() *cobra.Command {
	f := &workFlags{}
	command := &cobra.Command{
		Use:     "work NAME -f FILE --clusters CLUSTER,...",
		Aliases: []string{"works", "manifestwork"},
		Short:   "Show what would change on clusters if a work had these manifests",
		Long:    diffWorkLong,
		Example: "  capstan diff work web -f manifests/ --clusters cluster1,cluster2\n" +
			"  capstan diff work web -k overlays/prod --placement default/web -o table",
		Args:        exactName,
		Annotations: map[string]string{comparesAnnotation: ""},
	}
	f.add(a, command)
	command.ValidArgsFunction = a.completeWork(&f.clusters)
	format := addOutputFlag(command, output.Tree, output.Table, output.YAML, output.JSON)
	command.RunE = func(command *cobra.Command, args []string) error {
		ctx, cancel := a.limited(command.Context())
		defer cancel()
		d, err := f.delivery(ctx, a, args[0])
		if err != nil {
			return err
		}
		d.overwrite = true
		return a.withHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			return a.diff(ctx, hub, d, format.Format())
		})
	}
	return command
}

func (a *app) diff(ctx context.Context, hub *hubapi.Hub, d *delivery, format output.Format) error {
	trials, err := a.try(ctx, hub, d)
	if len(trials) > 0 || err == nil {
		err = errors.Join(a.print(format, output.Trials(trials)), err, wouldFail(trials))
	}
	if err != nil {
		return err
	}
	for i := range trials {
		if trials[i].Differs() {
			return errDiffers
		}
	}
	return nil
}
