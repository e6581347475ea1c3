package fleet

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/bootstrap"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/options"
)

const deleteTokenLong = `End every token that clusters can join with.

It deletes the bootstrap tokens, and the service account open-cluster-management/agent-registration-bootstrap with its role
and binding: the tokens of an account end with it. Agents that were given a token and are not accepted yet need a new one.
Clusters that have joined do not notice.

"capstan get token" makes new ones. A hub of Capstan makes a new bootstrap token by itself, which nobody has been told.`

// tokenDeletion is one run of "capstan delete token".
type tokenDeletion struct{ *options.Global }

// NewDeleteTokenCommand is "capstan delete token".
func NewDeleteTokenCommand(global *options.Global) *cobra.Command {
	d := &tokenDeletion{Global: global}
	command := &cobra.Command{
		Use:               "token",
		Short:             "End every token that clusters can join with",
		Long:              deleteTokenLong,
		Example:           "  capstan delete token --dry-run\n  capstan delete token",
		Args:              options.FlagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		return d.ChangeHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			found, err := bootstrap.Objects(ctx, hub)
			if err != nil {
				return err
			}
			return d.delete(ctx, hub, found)
		})
	}
	return command
}

// delete deletes what it can: each object that is gone is one less to join with.
func (d *tokenDeletion) delete(ctx context.Context, hub *hubapi.Hub, objects []bootstrap.Object) error {
	if len(objects) == 0 {
		d.Say("There is no token to join %s with. \"capstan get token\" makes one.", hub.Server)
		return nil
	}
	var errs []error
	for _, object := range objects {
		if d.DryRun {
			d.Say("would delete %s", object)
			continue
		}
		if err := bootstrap.Delete(ctx, hub, object); err != nil {
			errs = append(errs, err)
			continue
		}
		d.Say("%s is deleted", object)
	}
	if len(errs) == 0 && !d.DryRun {
		d.Note("No token that was given out so far can be used to join %s any more. \"capstan get token\" makes a new one.", hub.Server)
	}
	return errors.Join(errs...)
}
