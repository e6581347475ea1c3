// Package engine lists what a manager runs for its add-ons. The hub runs it for those of AddOnTemplates, and authors of other add-ons
// through the package addon/manager.
package engine

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-io/capstan/addon/internal/approve"
	"github.com/capstan-io/capstan/addon/internal/catalogue"
	"github.com/capstan-io/capstan/addon/internal/installation"
	"github.com/capstan-io/capstan/addon/internal/requeue"
	"github.com/capstan-io/capstan/addon/internal/sign"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

// Catalogue finds the code of an add-on.
type Catalogue = catalogue.Catalogue

// Options say which add-ons are run.
type Options struct {
	// Manager is a name for whoever runs them, which has to stay the same and be the value of a label: by it the permissions that were applied
	// are found again.
	Manager string
	// Catalogue has the add-ons.
	Catalogue Catalogue
	// Configs are the types of configurations that any of the add-ons may read.
	Configs []schema.GroupVersionResource
	// Requeue enqueues single add-ons again; nil enqueues none.
	Requeue *requeue.AddOns
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Register adds the controllers to the manager. Its scheme needs RBAC, certificate requests, clusters, works and add-ons.
func Register(mgr ctrl.Manager, o Options) error {
	err := errors.Join(
		signingrequest.AddIndex(context.Background(), mgr.GetFieldIndexer()),
		installation.Register(mgr, installation.Options{Manager: o.Manager, Catalogue: o.Catalogue, Configs: o.Configs, Requeue: o.Requeue,
			Clock: o.Clock}),
		approve.Register(mgr, approve.Options{Catalogue: o.Catalogue, Requeue: o.Requeue, Clock: o.Clock}),
		sign.Register(mgr, sign.Options{Catalogue: o.Catalogue, Requeue: o.Requeue}),
	)
	if err != nil {
		return fmt.Errorf("register the controllers of add-ons: %w", err)
	}
	return nil
}
